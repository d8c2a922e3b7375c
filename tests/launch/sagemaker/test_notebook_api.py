"""import launch.sagemaker: the command line's jobs with values instead of text."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from launch import sagemaker
from launch.core.errors import AwsError, Ended
from launch.core.jobs import NO_LEAKS
from launch.rehearse.aws.sagemaker.changes import complete, fail
from launch.sagemaker import sdk
from launch.sagemaker.runtime import Runtime
from launch.sagemaker.sdk import CONFIGURATION
from tests.launch.sagemaker.known import NAME
from tests.launch.sagemaker.world import Stage, interrupt, sending
from trainer.errors import SettingsError


@pytest.fixture
def stage() -> Iterator[Stage]:
    def runtime(region: str | None) -> Runtime:
        made = stage.runtime(region)
        return Runtime(made.aws, made.clock, made.say, lambda: True, made.results)

    with Stage.opened() as stage, mock.patch("launch.sagemaker.notebook._runtime", runtime):
        yield stage


def test_a_plan_is_the_command_lines(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    made = sagemaker.plan(job_name=NAME, instance_type="ml.g5.12xlarge", epochs=3)
    stage.type("--job-name", NAME, "--instance-type", "ml.g5.12xlarge", "--epochs", "3", "--dry-run=full")
    typed = capsys.readouterr().out

    def timeless(text: str) -> list[str]:
        return [line for line in text.splitlines() if "aws-ddp-toolkit:started" not in line]

    assert timeless(str(made) + "\n") == timeless(typed)
    assert stage.account.jobs == {}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"epoch": 3}, "did you mean 'epochs'?"),
        ({"epochs": "three"}, "must be a whole number"),
        ({"spot": True, "warm_pool_s": 60}, "leave one of them out"),
    ],
)
def test_a_wrong_setting_is_refused_before_any_call(stage: Stage, settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence.replace("?", r"\?")):
        sagemaker.plan(**settings)
    assert stage.account.requests == []


def test_a_secret_among_a_scripts_arguments_is_refused(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("1")
    with pytest.raises(SettingsError, match="--script holds what looks like a secret") as refused:
        sagemaker.plan(script="train.py", args=["--token", "hf_" + 34 * "a"])
    assert 34 * "a" not in str(refused.value)


def test_launch_returns_at_once_with_a_job(stage: Stage) -> None:
    job = sagemaker.launch(sagemaker.plan(job_name=NAME, epochs=3))
    assert stage.slept_s == 0
    assert (job.name, job.training_job.status) == (NAME, "InProgress")
    assert repr(job) == f"<job {NAME}: 1 x ml.g5.2xlarge, Starting>"
    assert job.cost() == 0
    assert job.metrics() == []
    assert job.status().startswith(f"job {NAME} in us-east-1: Starting, started ")


def test_a_plan_with_problems_is_not_launched(stage: Stage) -> None:
    made = sagemaker.plan(bucket="none-such")
    with pytest.raises(AwsError, match="there is no bucket none-such"):
        sagemaker.launch(made)
    assert stage.account.jobs == {}


def test_the_sdks_own_estimator_is_that_of_the_plan_and_its_source_is_there(stage: Stage) -> None:
    made = sagemaker.plan(job_name=NAME, through="estimator", spot=True, max_hours=2)
    pytorch = sagemaker.estimator(made)
    assert (pytorch.instance_type, pytorch.max_run, pytorch.use_spot_instances) == ("ml.g5.2xlarge", 7200, True)
    assert pytorch.source_dir.removeprefix(f"s3://{stage.account.bucket}/") in stage.account.s3_keys()
    assert stage.account.jobs == {}
    assert pytorch.sagemaker_session.sagemaker_config == CONFIGURATION  # nobody calls home


def test_interrupting_a_launch_leaves_no_job(stage: Stage) -> None:
    send = sdk.send

    def sent(*args: Any) -> None:
        send(*args)
        raise KeyboardInterrupt

    made = sagemaker.plan(job_name=NAME)
    with sending(sent), pytest.raises(Ended, match=f"{NAME} was started, and is stopped as"):
        sagemaker.launch(made)
    assert stage.account.left() == []


def test_a_job_is_followed_measured_and_fetched(stage: Stage, tmp_path: Path) -> None:
    stage.started(epochs=3)
    job = sagemaker.attach(NAME)
    stage.account.write(
        f"jobs/{NAME}/run/metrics.jsonl",
        "".join(json.dumps({"epoch": e, "images_per_s": 1.0, "epoch_s": 1.0}) + "\n" for e in (1, 2, 3)),
    )
    stage.events = iter([stage.log("Collecting x", "epoch 1/3  loss 1"), stage.complete(seconds=3600)])
    stage.said.clear()
    assert job.follow() is None
    assert "epoch 1/3  loss 1" in stage.said
    assert "Collecting x" not in stage.said
    assert list(stage.results.iterdir()) == []
    assert [record["epoch"] for record in job.metrics()] == [1, 2, 3]
    assert "epoch 3/3" in job.status()
    assert job.cost() == pytest.approx(1.515, abs=0.01)
    assert (job.result(tmp_path) / "model.pt").read_text() == "the weights"


def test_following_a_job_that_fails_raises_with_its_code(stage: Stage) -> None:
    made = stage.started()
    reason = 'AlgorithmError: ErrorMessage "Exception: exit code 5: the loss is not finite"'
    stage.events = iter([lambda: fail(made, reason)])
    with pytest.raises(Ended, match="the loss is not finite") as ended:
        sagemaker.attach(NAME).follow()
    assert ended.value.code == 5


def test_interrupting_a_cell_leaves_the_job_running(stage: Stage) -> None:
    stage.started()
    stage.events = iter([interrupt])
    sagemaker.attach(NAME).follow()
    assert stage.account.left() == [f"training job {NAME} (InProgress)"]


def test_the_jobs_there_are_are_newest_first_and_cost_what_leaks_says(stage: Stage) -> None:
    assert sagemaker.jobs() == []
    assert sagemaker.costs() == NO_LEAKS
    complete(stage.started("one"))
    stage.started("two")
    assert [job.name for job in sagemaker.jobs()] == ["two", "one"]
    assert sagemaker.costs().endswith("1.51 USD per hour, 0.00 USD of it for leaks")
