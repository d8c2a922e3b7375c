"""stop ends a job and all that it costs, makes sure of it, and touches nothing else."""

import pytest

from launch.core.errors import AwsError
from launch.rehearse.aws.sagemaker.changes import complete
from launch.sagemaker.stop import POOL_S, end
from launch.sagemaker.training_jobs import describe
from tests.launch.faults import Faults, injected, refused, throttled
from tests.launch.sagemaker.known import NAME, typed
from tests.launch.sagemaker.world import Stage, idle


@pytest.mark.parametrize("is_stopping", [False, True], ids=["", "stopping already"])
def test_a_job_is_stopped_and_waited_for_and_stopping_twice_is_fine(stage: Stage, is_stopping: bool) -> None:
    stage.account.rules.answers_stopping = 3
    stage.started()
    if is_stopping:
        stage.aws.call("sagemaker", "StopTrainingJob", {"TrainingJobName": NAME})
    for _ in range(2):
        assert stage.type("stop", NAME) == 0
        assert stage.account.left() == []
    assert len(stage.account.asked("StopTrainingJob")) == 1
    assert stage.slept_s > 0


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
    stage.started_by_others(f"{NAME}--2")
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
    stage.account.rules.answers_stopping = 2
    stage.account.requests.clear()
    assert end(lambda _: stage.aws, starts, stage.clock(), stage.said.append) == 3
    assert stage.account.operations[:3] == ["StopTrainingJob"] * 3
    assert "StopTrainingJob" not in stage.account.operations[3:]


def test_machines_that_are_kept_are_given_back(stage: Stage) -> None:
    complete(stage.started(warm_pool_s=600))
    assert stage.type("stop", NAME) == 0
    assert stage.account.left() == []
    assert stage.account.asked("UpdateTrainingJob") == [
        {"TrainingJobName": NAME, "ResourceConfig": {"KeepAlivePeriodInSeconds": 0}}
    ]


@pytest.mark.parametrize("said", ["InUse", None])
def test_machines_are_released_also_where_the_pool_appears_late(stage: Stage, said: str | None) -> None:
    complete(stage.started(warm_pool_s=600))
    pool = stage.job().described.pop("WarmPoolStatus")
    if said:
        stage.job().described["WarmPoolStatus"] = {"Status": said}

    def pool_appears() -> None:
        stage.job().described["WarmPoolStatus"] = pool

    stage.events = iter([*idle(3), pool_appears])
    assert stage.type("stop", NAME) == 0
    assert stage.account.left() == []
    assert stage.account.asked("UpdateTrainingJob")


def test_a_pool_that_never_appears_is_not_waited_for_long(stage: Stage) -> None:
    complete(stage.started(warm_pool_s=600))
    del stage.job().described["WarmPoolStatus"]
    assert stage.type("stop", NAME) == 0
    assert stage.slept_s == POOL_S


def test_a_job_that_ends_meanwhile_is_fine(stage: Stage) -> None:
    stage.started()
    seen = describe(stage.aws, NAME)
    complete(stage.job())
    assert end(lambda _: stage.aws, [seen], stage.clock(), stage.said.append) == 1
    assert stage.account.left() == []


def test_a_job_that_does_not_stop_is_an_error_after_the_limit(
    stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launch.sagemaker.stop.LIMIT_S", 300.0)
    stage.account.rules.answers_stopping = None
    stage.started()
    assert stage.type("stop", NAME) == 4
    assert capsys.readouterr().err.endswith(f"\n  {typed('stop')}\n")
    assert 240 < stage.slept_s < 310


def test_a_job_without_the_toolkits_tag_is_never_stopped(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.started_by_others()
    assert stage.type("stop", "theirs") == 2
    assert "no job 'theirs' in us-east-1" in capsys.readouterr().err
    assert stage.type("stop", "--all", "--yes") == 0
    assert end(lambda _: stage.aws, [describe(stage.aws, "theirs")], stage.clock(), stage.said.append) == 0
    assert stage.account.left() == ["training job theirs (InProgress)"]
    assert stage.account.asked("StopTrainingJob") == []


# ---- trouble


@pytest.mark.parametrize("operation", ["StopTrainingJob", "UpdateTrainingJob"])
def test_a_stop_retries_throttled_requests(operation: str, stage: Stage) -> None:
    stage.started("other")
    complete(stage.started(warm_pool_s=600))
    due = [describe(stage.aws, NAME), describe(stage.aws, "other")]
    with injected(Faults()) as faults:
        faults.on(operation, throttled())
        assert end(lambda _: stage.aws, due, stage.clock(), stage.said.append) == 2
    assert stage.account.left() == []


@pytest.mark.parametrize(
    "operation",
    ["ListTrainingJobs", "DescribeTrainingJob"],
)
@pytest.mark.parametrize("words", [(NAME,), ("--all", "--yes")])
def test_a_stop_looks_again_where_an_account_asks_too_much(
    words: tuple[str, ...], operation: str, stage: Stage
) -> None:
    stage.started()
    with injected(Faults().on(operation, throttled())):
        assert stage.type("stop", *words) == 0
    assert stage.account.left() == []


def test_a_pool_that_cannot_be_released_is_an_error(stage: Stage) -> None:
    complete(stage.started(warm_pool_s=600))
    with injected(Faults()) as faults:
        faults.on("UpdateTrainingJob", refused("ValidationException", 400), nth=None)
        with pytest.raises(AwsError):
            end(lambda _: stage.aws, [describe(stage.aws, NAME)], stage.clock(), stage.said.append)
    assert stage.account.left() == [f"warm pool of {NAME}"]
