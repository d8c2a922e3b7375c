"""How the jobs are, or one of them: what it costs, how far it is, how it ended, what to type next."""

import json
import re
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pytest

from launch.rehearse.aws.sagemaker.changes import complete, fail
from launch.sagemaker import status
from tests.launch.faults import Faults, injected, refused
from tests.launch.sagemaker.known import BUCKET, NAME, NOW, training_job, typed
from tests.launch.sagemaker.world import Stage
from trainer.script.pace import Pace

EPOCH = {
    "epoch": 2, "train_loss": 1.5, "train_top1": 0.444, "eval_top1": 0.5, "images_per_s": 31_000.4, "epoch_s": 12.3,
}  # fmt: skip
DONE = {"status": "Completed", "detail": "Completed", "ended": NOW - timedelta(minutes=5), "billed_s": 1800}


# ---- text


def as_text(*args: Any) -> str:
    return str(status.job_state(*args))


def test_all_jobs_are_rows_with_what_they_cost_an_hour() -> None:
    training_jobs = [
        training_job(),
        training_job(name="b", nodes=1, is_spot=True, started=None, max_wait_s=172_800, detail="Starting"),
        training_job(name="c", **DONE),
    ]
    text = status.all_as_text(training_jobs, "us-east-1", NOW)
    assert [re.sub(" +", " ", line) for line in text.splitlines()[1:4]] == [
        " cifar10-1 Training 2 x ml.g5.12xlarge 1 h 0 min 14.18 11.82 23 h 10 min left",
        " b Starting 1 x ml.g5.12xlarge, spot 1 h 0 min 0.00 0.00 1 d 23 h left",
        " c Completed 2 x ml.g5.12xlarge 1 h 0 min 0.00 7.09 -",
    ]
    assert text.endswith("\n\n14.18 USD per hour in us-east-1")


def test_a_running_job_in_full() -> None:
    assert as_text(training_job(), EPOCH, NOW).splitlines() == [
        f"job {NAME} in us-east-1: Training, started 1 h 0 min ago",
        "",
        "  SageMaker    Training image download completed. Training in progress.",
        "  training     epoch 2/3, loss 1.5000, accuracy 44.4%, eval accuracy 50.0%, 31,000 images/s, 12.3 s",
        "  machines     2 x ml.g5.12xlarge",
        "  cost         about 11.82 USD so far",
        "  time limit   2026-11-22 13:10 UTC",
        f"  checkpoints  s3://{BUCKET}/jobs/{NAME}/run",
        f"  console      https://us-east-1.console.aws.amazon.com/sagemaker/home?region=us-east-1#/jobs/{NAME}",
        "",
        "next:",
        f"  python -m launch.sagemaker logs {NAME} --follow --region us-east-1",
        f"  {typed('attach')}",
        f"  {typed('stop')}",
    ]


def test_a_job_that_is_over_says_how_and_where_its_result_is() -> None:
    text = as_text(training_job(name=f"{NAME}--2", **{**DONE, "model": "s3://b/model.tar.gz"}), None, NOW)
    assert text.splitlines()[0] == (f"job {NAME} in us-east-1 (as {NAME}--2) ended 5 min ago: the training is done")
    assert "  result       s3://b/model.tar.gz" in text
    assert "time limit" not in text
    assert "--follow" not in text
    assert " stop " not in text
    assert "training  " not in text


def test_kept_machines_can_be_given_back() -> None:
    text = as_text(training_job(**{**DONE, "pool": "Available"}), None, NOW)
    assert "  warm pool    Available" in text
    assert f"  {typed('stop')}" in text


# ---- the verb


def test_without_jobs_it_says_how_to_see_older_ones(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage.type("status") == 0
    assert "  python -m launch.sagemaker status JOB --region us-east-1\n" in capsys.readouterr().out


def test_jobs_of_the_last_day_and_those_that_cost_are_listed_and_nobody_elses(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    def listed() -> list[str]:
        capsys.readouterr()
        assert stage.type("status") == 0
        return [line.split()[0] for line in capsys.readouterr().out.split("\n\n")[0].splitlines()[1:]]

    stage.started_by_others()
    complete(stage.started("done"))
    complete(stage.started("warm", warm_pool_s=600))
    stage.started("runs", nodes=2)  # so that it does not take the kept one
    assert listed() == ["runs", "warm", "done"]
    stage.slept_s += 2 * 86_400
    assert listed() == ["runs", "warm"]
    assert stage.type("status", "done") == 0
    assert "job done in us-east-1 ended " in capsys.readouterr().out


def test_the_newest_start_is_shown_with_the_newest_epoch(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    complete(stage.started(epochs=3))
    stage.started(epochs=3)
    stage.account.write(f"jobs/{NAME}/run/metrics.jsonl", json.dumps({**EPOCH, "epoch": 1}) + "\n" + json.dumps(EPOCH))
    assert stage.type("status", NAME) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"job {NAME} in us-east-1 (as {NAME}--2): Training, started ")
    assert "  training     epoch 2/3, loss 1.5000" in out


def test_status_of_a_script_shows_its_progress_and_the_time_left_while_it_runs(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    job = stage.started()
    stage.account.write(f"jobs/{NAME}/run/metrics.jsonl", json.dumps({"step": 40, "loss": 0.5}) + "\n")
    stage.account.write(f"jobs/{NAME}/run/pace.json", json.dumps(asdict(Pace(0.4, 0.0, 2400.0, 4e9))))

    assert stage.type("status", NAME) == 0
    assert "  progress     40% done, about 1.0 h left at its pace\n" in capsys.readouterr().out
    complete(job)
    assert stage.type("status", NAME) == 0
    assert "  progress     40% done\n" in capsys.readouterr().out


def test_metrics_that_cannot_be_read_are_left_out(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.started()
    with injected(Faults()) as faults:
        faults.on("GetObject", refused("AccessDenied", 403), nth=None)
        assert stage.type("status", NAME) == 0
    assert "  training  " not in capsys.readouterr().out


@pytest.mark.parametrize("reason", ["", "AlgorithmError: ExecuteUserScriptError: ExitCode 1"])
def test_a_job_that_nobody_followed_says_why_from_its_log(
    stage: Stage, capsys: pytest.CaptureFixture[str], reason: str
) -> None:
    """https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_FilterLogEvents.html"""
    job = stage.started()
    said = '[1,mpirank:4,algo-2]<stderr>:Exception: exit code 3: no images."'
    stage.account.log(NAME, "algo-1", ["epoch 1/3", "the rank before me has ended"])
    stage.account.log(NAME, "algo-2", ["epoch 1/3", said])
    fail(job, reason)
    stage.account.requests.clear()
    assert stage.type("status", NAME) == 0
    assert re.match(rf"job {NAME} in us-east-1 ended \d+ s ago: no images\n", capsys.readouterr().out)
    (asked,) = stage.account.asked("FilterLogEvents")  # bounded: matching lines of the last hour
    assert asked["filterPattern"] == '"Exception: exit code"'
    assert asked["startTime"] >= (job.described["TrainingEndTime"].timestamp() - 3601) * 1000


@pytest.mark.parametrize("reason", ["CapacityError: none", "AlgorithmError: Exception: exit code 3: no images."])
def test_the_log_is_not_read_where_sagemaker_has_the_reason(stage: Stage, reason: str) -> None:
    fail(stage.started(), reason)
    stage.account.requests.clear()
    assert stage.type("status", NAME) == 0
    assert stage.account.asked("FilterLogEvents") == []


def test_without_the_right_to_read_the_log_sagemakers_reason_is_shown(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    fail(stage.started(), "AlgorithmError: ExecuteUserScriptError: ExitCode 1")
    with injected(Faults()) as faults:
        faults.on("FilterLogEvents", refused("AccessDeniedException", 403), nth=None)
        assert stage.type("status", NAME) == 0
    assert "ago: AlgorithmError: ExecuteUserScriptError: ExitCode 1\n" in capsys.readouterr().out


def test_looking_changes_nothing(stage: Stage) -> None:
    stage.started()
    stage.account.requests.clear()
    assert stage.type("status") == 0
    assert stage.type("status", NAME) == 0
    assert stage.type("leaks") == 0
    assert stage.type("logs", NAME) == 0
    assert not [name for name in stage.account.operations if not name.startswith(("Describe", "Get", "List", "Filter"))]
