"""stop ends a job and all that it costs, makes sure of it, and touches nothing else."""

import pytest

from launch.core.errors import AwsError
from launch.rehearse.aws.sagemaker.changes import complete
from launch.sagemaker.stop import POOL_S, end
from launch.sagemaker.training_jobs import describe
from tests.launch.faults import Faults, injected, lost, refused, throttled
from tests.launch.sagemaker.known import NAME, typed
from tests.launch.sagemaker.world import Stage, idle


def foreign(stage: Stage, name: str = "theirs") -> None:
    """A job that somebody started without the toolkit."""
    stage.started(name)
    arn = stage.job(name).arn
    keys = [tag["Key"] for tag in stage.job(name).tags]
    stage.aws.call("sagemaker", "DeleteTags", {"ResourceArn": arn, "TagKeys": keys})
    assert describe(stage.aws, name).tags == {}
    stage.account.requests.clear()


def test_a_job_is_stopped_and_waited_for(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.account.slow.stopping = 3
    stage.started()
    assert stage.type("stop", NAME) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"stopping {NAME}",
        f"{NAME} is stopped and costs nothing",
    ]
    assert stage.account.left() == []
    assert stage.slept_s > 0


def test_stopping_twice_is_fine(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.started()
    assert stage.type("stop", NAME) == 0
    capsys.readouterr()
    assert stage.type("stop", NAME) == 0
    assert capsys.readouterr().out == f"{NAME} was not running\n"
    assert len(stage.account.asked("StopTrainingJob")) == 1


def test_every_start_of_a_job_is_stopped_and_no_other_job(stage: Stage) -> None:
    complete(stage.started(warm_pool_s=600))
    stage.started(nodes=2)
    stage.started("other", nodes=3)
    assert stage.account.left() == [
        f"training job {NAME}--2 (InProgress)", "training job other (InProgress)", f"warm pool of {NAME}",
    ]  # fmt: skip
    assert stage.type("stop", NAME) == 0
    assert stage.account.left() == ["training job other (InProgress)"]


def test_a_foreign_job_whose_name_looks_like_another_start_is_left_alone(stage: Stage) -> None:
    stage.started()
    foreign(stage, f"{NAME}--2")
    stage.started()
    assert stage.type("status", NAME) == 0
    assert f"(as {NAME}--3)" in stage.text
    assert stage.type("stop", NAME) == 0
    assert stage.account.left() == [f"training job {NAME}--2 (InProgress)"]
    assert stage.account.asked("StopTrainingJob") == [
        {"TrainingJobName": f"{NAME}--3"}, {"TrainingJobName": NAME},
    ]  # fmt: skip


def test_a_start_that_is_not_listed_yet_is_stopped(stage: Stage) -> None:
    complete(stage.started())
    stage.started()
    for unlisted in ({f"{NAME}--2"}, {NAME, f"{NAME}--2"}):
        stage.account.rules.unlisted.update(unlisted)
        assert stage.type("stop", NAME) == 0
        assert stage.account.left() == []
        stage.started()


def test_all_are_asked_to_stop_before_any_is_waited_for(stage: Stage) -> None:
    starts = [describe(stage.aws, stage.started(name).name) for name in ("one", "two", "three")]
    stage.account.slow.stopping = 2
    stage.account.requests.clear()
    assert end(lambda _: stage.aws, starts, stage.clock(), stage.said.append) == 3
    assert stage.account.operations[:3] == ["StopTrainingJob"] * 3
    assert "StopTrainingJob" not in stage.account.operations[3:]


def test_machines_that_are_kept_are_given_back(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    complete(stage.started(warm_pool_s=600))
    assert stage.type("stop", NAME) == 0
    assert capsys.readouterr().out.startswith(f"releasing the instances kept after {NAME}\n")
    assert stage.account.left() == []
    assert stage.account.asked("UpdateTrainingJob") == [
        {"TrainingJobName": NAME, "ResourceConfig": {"KeepAlivePeriodInSeconds": 0}}
    ]


@pytest.mark.parametrize("said", ["InUse", None])
def test_machines_are_given_back_also_where_it_takes_a_while_to_be_told_that_they_are_kept(
    stage: Stage, said: str | None
) -> None:
    complete(stage.started(warm_pool_s=600))
    pool = stage.job().described.pop("WarmPoolStatus")
    if said:
        stage.job().described["WarmPoolStatus"] = {"Status": said}

    def told() -> None:
        stage.job().described["WarmPoolStatus"] = pool

    stage.events = iter([*idle(3), told])
    assert stage.type("stop", NAME) == 0
    assert stage.account.left() == []
    assert stage.account.asked("UpdateTrainingJob")


def test_machines_of_which_nothing_is_ever_told_are_not_waited_for_long(stage: Stage) -> None:
    complete(stage.started(warm_pool_s=600))
    del stage.job().described["WarmPoolStatus"]
    assert stage.type("stop", NAME) == 0
    assert stage.slept_s == POOL_S


def test_a_job_that_is_stopping_already_is_waited_for(stage: Stage) -> None:
    stage.started()
    stage.account.slow.stopping = 2
    stage.aws.call("sagemaker", "StopTrainingJob", {"TrainingJobName": NAME})
    stage.account.requests.clear()
    assert stage.type("stop", NAME) == 0
    assert stage.account.asked("StopTrainingJob") == []
    assert stage.account.left() == []


def test_a_job_that_ends_meanwhile_is_fine(stage: Stage) -> None:
    stage.started()
    seen = describe(stage.aws, NAME)
    complete(stage.job())
    assert end(lambda _: stage.aws, [seen], stage.clock(), stage.said.append) == 1
    assert stage.account.left() == []


def test_a_job_that_does_not_stop_is_told_after_a_while(
    stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launch.sagemaker.stop.LIMIT_S", 300.0)
    stage.account.slow.stopping = None
    stage.started()
    assert stage.type("stop", NAME) == 4
    error = capsys.readouterr().err
    assert f"{NAME}: it is still Stopping (Stopping) after 5 minutes" in error
    assert error.endswith(f"\n  {typed('stop')}\n")
    assert 240 < stage.slept_s < 310


def test_a_job_without_the_toolkits_tag_is_never_stopped(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    foreign(stage)
    assert stage.type("stop", "theirs") == 2
    assert "no job 'theirs' in us-east-1" in capsys.readouterr().err
    assert stage.type("stop", "--all", "--yes") == 0
    assert end(lambda _: stage.aws, [describe(stage.aws, "theirs")], stage.clock(), stage.said.append) == 0
    assert stage.account.left() == ["training job theirs (InProgress)"]
    assert stage.account.asked("StopTrainingJob") == []


def test_an_unknown_job_is_told_with_the_nearest(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.started("imagenet-1")
    assert stage.type("stop", "imagenet-2") == 2
    assert capsys.readouterr().err == (
        "error: no job 'imagenet-2' in us-east-1; did you mean 'imagenet-1'? Jobs of the last day: imagenet-1. "
        "For another region add --region.\n"
    )
    assert stage.account.left() == ["training job imagenet-1 (InProgress)"]


def test_without_a_job_those_there_are_are_named(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.started("one")
    assert stage.type("stop") == 2
    assert capsys.readouterr().err == (
        "error: which job? python -m launch.sagemaker stop JOB.  Jobs of the last day: one.\n"
    )


# ---- all of them


def test_all_shows_what_it_would_end_and_wants_to_be_sure(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.started("one")
    stage.started("two", nodes=2)
    assert stage.type("stop", "--all") == 2
    out, err = capsys.readouterr()
    assert "2 x ml.g5.2xlarge" in out
    assert err == "error: --all stops two, one; add --yes to confirm.\n"
    assert len(stage.account.left()) == 2


def test_all_ends_everything_of_the_toolkits_and_nothing_else(stage: Stage) -> None:
    foreign(stage)
    complete(stage.started("warm", warm_pool_s=600))
    for name in ("one", "two"):
        stage.started(name)
    assert stage.type("stop", "--all", "--yes") == 0
    assert stage.account.left() == ["training job theirs (InProgress)"]


def test_all_with_nothing_there_is_fine(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage.type("stop", "--all") == 0
    assert capsys.readouterr().out == "no job is running\n"


def test_all_and_a_job_do_not_go_together(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage.type("stop", NAME, "--all") == 2
    assert capsys.readouterr().err == f"error: use either --all or {NAME}, not both.\n"


def test_one_that_does_not_want_to_end_does_not_save_the_others(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        stage.started(name)
    with injected(Faults()) as faults:
        faults.on("StopTrainingJob", refused("AccessDeniedException", 403))
        assert stage.type("stop", "--all", "--yes") == 4
    assert "these credentials may not sagemaker:StopTrainingJob" in capsys.readouterr().err
    assert len(stage.account.left()) == 1


# ---- trouble


@pytest.mark.parametrize("attempts", [1, None], ids=["once", "for good"])
def test_a_lost_answer_needs_at_most_a_second_stop(stage: Stage, attempts: int | None) -> None:
    stage.started()
    with injected(Faults()) as faults:
        faults.on("StopTrainingJob", lost(attempts))
        assert stage.type("stop", NAME) in (0, 4)
    assert stage.type("stop", NAME) == 0
    assert stage.account.left() == []


@pytest.mark.parametrize("operation", ["StopTrainingJob", "DescribeTrainingJob", "UpdateTrainingJob"])
def test_a_stop_bears_an_account_that_asks_too_much_for_a_while(operation: str, stage: Stage) -> None:
    """The account's other users and tools share its limit of requests; nothing was ended when one of ours met it."""
    stage.started("other")
    complete(stage.started(warm_pool_s=600))
    due = [describe(stage.aws, NAME), describe(stage.aws, "other")]
    with injected(Faults()) as faults:
        faults.on(operation, throttled())
        assert end(lambda _: stage.aws, due, stage.clock(), stage.said.append) == 2
    assert stage.account.left() == []


@pytest.mark.parametrize("operation", ["ListTrainingJobs", "DescribeTrainingJob", "ListTags"])
@pytest.mark.parametrize("words", [(NAME,), ("--all", "--yes")])
def test_a_stop_looks_again_where_an_account_asks_too_much(
    words: tuple[str, ...], operation: str, stage: Stage
) -> None:
    """The first look for the job met the limit of requests, and the command ended before it stopped anything."""
    stage.started()
    with injected(Faults().on(operation, throttled())):
        assert stage.type("stop", *words) == 0
    assert stage.account.left() == []


def test_a_pool_that_cannot_be_given_back_is_told(stage: Stage) -> None:
    complete(stage.started(warm_pool_s=600))
    with injected(Faults()) as faults:
        faults.on("UpdateTrainingJob", refused("ValidationException", 400), nth=None)
        with pytest.raises(AwsError):
            end(lambda _: stage.aws, [describe(stage.aws, NAME)], stage.clock(), stage.said.append)
    assert stage.account.left() == [f"warm pool of {NAME}"]


def test_a_pool_that_ended_meanwhile_is_fine(stage: Stage) -> None:
    complete(stage.started(warm_pool_s=600))
    seen = describe(stage.aws, NAME)
    assert stage.type("stop", NAME) == 0
    assert seen.pool == "Available"
    assert end(lambda _: stage.aws, [seen], stage.clock(), stage.said.append) == 1
    assert stage.account.left() == []
