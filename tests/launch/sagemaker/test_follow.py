"""Following a job: everything once, through trouble, to the last line."""

import pytest

from launch.aws.retry import RETRY_S
from launch.rehearse.aws.sagemaker.changes import interrupt
from launch.rehearse.aws.sagemaker.jobs import MESSAGES
from launch.sagemaker.follow import Follower, is_headline, streams_of
from launch.sagemaker.training_jobs import describe
from tests.launch.faults import Faults, injected, unreachable
from tests.launch.sagemaker.known import NAME
from tests.launch.sagemaker.world import Stage, idle


@pytest.fixture
def follower(stage: Stage) -> Follower:
    """Of a job that trains."""
    stage.started()
    stage.said.clear()
    return Follower(stage.runtime(), describe(stage.aws, NAME))


def test_sagemakers_messages_are_shown_once(stage: Stage, follower: Follower) -> None:
    stage.events = iter([*idle(5), stage.complete()])
    done = follower.follow()
    assert done.status == "Completed"
    assert stage.said == [f"{status}: {MESSAGES[key]}" for status, key in [
        ("Starting", "Prepared"), ("Downloading", "Downloading"), ("Training", "Training"),
        ("Uploading", "Uploading"), ("Completed", "Completed"),
    ]]  # fmt: skip


def test_lines_are_shown_once_in_their_order_between_what_sagemaker_says(stage: Stage, follower: Follower) -> None:
    stage.events = iter([stage.log("a", "b"), *idle(2), stage.log("c"), stage.complete(), stage.log("d")])
    follower.follow()
    assert [line for line in stage.said if ": " not in line] == ["a", "b", "c", "d"]
    assert list(follower.lines) == ["a", "b", "c", "d"]


def test_only_so_many_lines_are_remembered(stage: Stage, follower: Follower) -> None:
    stage.events = iter([stage.log(*map(str, range(1100))), stage.complete()])
    follower.follow()
    assert list(follower.lines) == [str(number) for number in range(100, 1100)]


def test_streams_are_the_jobs_own_and_marked_with_the_number_of_the_instance() -> None:
    streams = streams_of(NAME)
    assert streams.group == "/aws/sagemaker/TrainingJobs"
    assert streams.start(None) == f"{NAME}/algo-"
    assert streams.start(1) == f"{NAME}/algo-1-"  # and not algo-10
    assert streams.mark(f"{NAME}/algo-12-1732180000") == "12"


def test_a_spot_job_is_followed_through_its_interruption(stage: Stage) -> None:
    made = stage.started(spot=True)
    stage.said.clear()
    follower = Follower(stage.runtime(), describe(stage.aws, NAME))
    stage.events = iter([lambda: interrupt(made), stage.complete()])
    assert follower.follow().status == "Completed"
    assert [line.partition(":")[0] for line in stage.said] == [
        "Starting", "Downloading", "Training", "Interrupted", "Starting", "Downloading", "Training", "Uploading",
        "Completed",
    ]  # fmt: skip


def test_trouble_that_comes_and_goes_is_never_long(stage: Stage, follower: Follower) -> None:
    with injected(Faults()) as faults:
        for number in range(2, 202, 2):
            faults.on("DescribeTrainingJob", unreachable(), nth=number)
        stage.events = iter([*idle(200), stage.complete()])
        assert follower.follow().status == "Completed"
    assert stage.slept_s > 2 * RETRY_S
    assert "trying again" in stage.text


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("epoch 1/10  loss 1.9046  accuracy 38.2%", True),
        ("[2] epoch 1/10  loss 1.9046", True),
        ("rank 3: warning: 7 images could not be read", True),
        ("cnn, 186,538 parameters, on digits: 1,437 training and 360 evaluation images of 32 px, 10 classes", True),
        ("ddp on 2 CPUs, bf16, 10 epochs, 220 updates", True),
        ("done: best test accuracy 98.9%", True),
        ("[METRIC] epoch=1 train_loss=1.9046", False),
        ("Collecting simplejpeg==1.9.0", False),
        ("2026-11-21 14:00:00,123 sagemaker-training-toolkit INFO     Reporting training SUCCESS", False),
        ("", False),
    ],
)
def test_a_headline_is_what_the_trainer_says_to_people(line: str, is_one: bool) -> None:
    assert is_headline(line) is is_one


def test_with_headlines_only_no_other_line_is_shown_and_all_are_remembered(stage: Stage) -> None:
    stage.started()
    follower = Follower(stage.runtime(), describe(stage.aws, NAME), is_headline)
    stage.events = iter([stage.log("Collecting x", "epoch 1/2  loss 1"), stage.complete()])
    follower.follow()
    assert "epoch 1/2  loss 1" in stage.said
    assert "Collecting x" not in stage.said
    assert list(follower.lines) == ["Collecting x", "epoch 1/2  loss 1"]
