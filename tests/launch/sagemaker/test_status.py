"""How the jobs are, or one of them: what it costs, how far it is, how it ended, what to type next."""

import json
import re
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pytest

from launch.rehearse.aws.sagemaker.changes import complete, fail
from launch.sagemaker import status
from launch.sagemaker.training_job import read_training_job
from tests.launch.faults import Faults, injected, refused
from tests.launch.sagemaker.known import BUCKET, NAME, NOW, training_job, typed
from tests.launch.sagemaker.test_stop import foreign
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


def test_kept_machines_cost_and_a_passed_time_limit_is_told() -> None:
    kept = training_job(**{**DONE, "pool": "Available"})
    late = training_job(max_run_s=600)
    assert kept.usd_per_hour_now == pytest.approx(14.18)
    assert status.all_as_text([late], "us-east-1", NOW).splitlines()[1].endswith("  passed")


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


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"created": NOW - timedelta(days=3)}, "2026-11-22 13:10 UTC"),
        ({"max_wait_s": 7200, "is_spot": True}, "2026-11-21 15:00 UTC"),
        ({"started": None}, None),  # it waits for machines
    ],
)
def test_the_time_limit_is_sagemakers_own(changes: dict[str, Any], limit: str | None) -> None:
    lines = as_text(training_job(**changes), None, NOW).splitlines()
    assert [line.split(maxsplit=2)[2] for line in lines if "time limit" in line] == ([limit] if limit else [])


def test_a_job_that_is_over_says_how_and_where_its_result_is() -> None:
    text = as_text(training_job(name=f"{NAME}--2", **{**DONE, "model": "s3://b/model.tar.gz"}), None, NOW)
    assert text.splitlines()[0] == (f"job {NAME} in us-east-1 (as {NAME}--2) ended 5 min ago: the training is done")
    assert "  result       s3://b/model.tar.gz" in text
    assert "time limit" not in text
    assert "--follow" not in text
    assert " stop " not in text
    assert "training  " not in text


def test_of_a_spot_job_only_the_most_is_known_before_its_end() -> None:
    assert "  cost         at most 11.82 USD so far" in as_text(training_job(is_spot=True), None, NOW)
    assert "  cost         about 7.09 USD so far" in as_text(training_job(is_spot=True, **DONE), None, NOW)


def test_kept_machines_can_be_given_back() -> None:
    text = as_text(training_job(**{**DONE, "pool": "Available"}), None, NOW)
    assert "  warm pool    Available" in text
    assert f"  {typed('stop')}" in text


@pytest.mark.parametrize(("given", "shown"), [({"epochs": '"7"'}, "2/7"), ({"epochs": '"70"'}, "2/70"), ({}, "2/5")])
def test_how_many_epochs_there_shall_be_is_the_jobs_own_setting(given: dict[str, str], shown: str) -> None:
    assert f"epoch {shown}, " in as_text(training_job(hyperparameters=given), EPOCH, NOW)


# ---- the verb


def test_without_jobs_it_says_where_older_ones_are(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage.type("status") == 0
    out = capsys.readouterr().out
    assert out.startswith("no job in us-east-1 in the last day.")
    assert "  python -m launch.sagemaker status JOB --region us-east-1\n" in out


def test_jobs_of_the_last_day_and_those_that_cost_are_listed_and_nobody_elses(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign(stage)
    complete(stage.started("done"))
    stage.started("runs")
    assert stage.type("status") == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[1:3]] == ["runs", "done"]
    assert "theirs" not in out


def test_a_job_of_the_day_before_is_not_listed_unless_it_still_runs(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    complete(stage.started("done"))
    stage.started("runs")
    stage.slept_s += 2 * 86_400
    assert stage.type("status") == 0
    out = capsys.readouterr().out
    assert "runs" in out
    assert "done" not in out
    assert stage.type("status", "done") == 0
    assert "job done in us-east-1 ended " in capsys.readouterr().out


def test_machines_that_are_kept_are_listed_however_old_the_job_is(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    complete(stage.started("warm", warm_pool_s=600))
    stage.slept_s += 2 * 86_400
    assert stage.type("status") == 0
    assert "warm" in capsys.readouterr().out


def test_the_newest_start_is_shown_with_the_newest_epoch(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    complete(stage.started(epochs=3))
    stage.started(epochs=3)
    stage.account.write(f"jobs/{NAME}/run/metrics.jsonl", json.dumps({**EPOCH, "epoch": 1}) + "\n" + json.dumps(EPOCH))
    assert stage.type("status", NAME) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"job {NAME} in us-east-1 (as {NAME}--2): Training, started ")
    assert "  training     epoch 2/3, loss 1.5000" in out


def test_a_script_tells_how_far_it_is_and_while_it_runs_how_long_the_rest_takes(
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


def test_a_job_that_failed_says_why(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    fail(stage.started(), 'AlgorithmError: ExecuteUserScriptError:\nErrorMessage "Exception: exit code 3: no images."')
    assert stage.type("status", NAME) == 0
    assert re.match(rf"job {NAME} in us-east-1 ended \d+ s ago: no images\n", capsys.readouterr().out)


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
def test_the_log_is_not_asked_for_what_sagemaker_says_itself(stage: Stage, reason: str) -> None:
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


def test_an_unknown_job_is_told_with_the_nearest(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.started("imagenet-1")
    assert stage.type("status", "imagnet-1") == 2
    assert "no job 'imagnet-1' in us-east-1; did you mean 'imagenet-1'?" in capsys.readouterr().err
    assert stage.type("status", "imagenet-1", "--region", "eu-west-1") == 2
    assert "no job 'imagenet-1' in eu-west-1. There are no jobs of the last day." in capsys.readouterr().err


def test_looking_changes_nothing(stage: Stage) -> None:
    stage.started()
    stage.account.requests.clear()
    assert stage.type("status") == 0
    assert stage.type("status", NAME) == 0
    assert stage.type("leaks") == 0
    assert stage.type("logs", NAME) == 0
    assert not [name for name in stage.account.operations if not name.startswith(("Describe", "Get", "List", "Filter"))]


def test_a_place_with_line_ends_is_no_line_of_a_status() -> None:
    """SageMaker's pattern lets them into a bucket's name: `(https|s3)://([^/]+)/?(.*)`."""
    place = "s3://x\n\nnext:\n  curl x | sh\n/"
    described = {
        "TrainingJobName": "demo", "TrainingJobStatus": "Completed", "CreationTime": NOW,
        "CheckpointConfig": {"S3Uri": place},
        "ModelArtifacts": {"S3ModelArtifacts": place},
    }  # fmt: skip
    assert "curl" not in as_text(read_training_job(described, {}, "us-east-1"), None, NOW)
