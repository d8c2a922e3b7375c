"""The embedded SageMaker with containers that do what a test says: how a job starts, ends and is kept."""

import threading
import time
from pathlib import Path
from typing import Any

import boto3
import pytest

from launch.rehearse.aws.sagemaker.jobs import MESSAGES
from launch.rehearse.aws.sagemaker.rules import Rules
from launch.rehearse.nodes.sagemaker.run import failure_reason
from tests.launch.sagemaker.agent import Agent, playing

KIND = "ml.g5.12xlarge"
NO_ROOM = MESSAGES["No capacity"]


def client(agent: Agent, service: str) -> Any:
    return boto3.client(service, endpoint_url=agent.url, region_name="us-east-1")


def request(agent: Agent, name: str, **more: Any) -> dict[str, Any]:
    """As the SDK asks for a script without torchrun."""
    account = agent.account
    source = {
        "S3DataType": "S3Prefix",
        "S3Uri": f"s3://{account.bucket}/data",
        "S3DataDistributionType": "FullyReplicated",
    }
    code = account.write(f"code/{name}/sourcedir.tar.gz")
    account.write("data/a/1.jpg", b"x")
    return {
        "TrainingJobName": name,
        "AlgorithmSpecification": {
            "TrainingImage": "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0",
            "TrainingInputMode": "FastFile",
            "MetricDefinitions": [{"Name": "loss", "Regex": r"loss=([0-9.]+)"}],
        },
        "RoleArn": account.role,
        "HyperParameters": {"sagemaker_program": '"train.py"', "sagemaker_submit_directory": f'"{code}"'},
        "InputDataConfig": [{"ChannelName": "train", "DataSource": {"S3DataSource": source}, "InputMode": "FastFile"}],
        "OutputDataConfig": {"S3OutputPath": f"s3://{account.bucket}/results"},
        "ResourceConfig": {"InstanceType": KIND, "InstanceCount": 1, "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 600},
        "EnableManagedSpotTraining": True,
        "CheckpointConfig": {"S3Uri": f"s3://{account.bucket}/checkpoints/{name}", "LocalPath": "/opt/ml/checkpoints"},
        **more,
    }


def until(condition: Any, timeout_s: float = 60) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "nothing ever happens"
        time.sleep(0.02)


class Scripted:
    """In place of Container: does what a test says, at once."""

    code: int | None = None
    text = ""
    disk = None
    stop_s = 0.0

    def __init__(self, spec: Any, net: Any, on_line: Any) -> None:
        self.spec, self.exit_code = spec, None
        (spec.base / "model").mkdir(parents=True)
        (spec.base / "model/model.pt").write_text("so far")
        on_line("loss=0.75")
        on_line("")
        self.exit_code = type(self).code

    @property
    def failure(self) -> str:
        return type(self).text

    def wait(self, timeout_s: float) -> int:
        assert self.exit_code is not None
        return self.exit_code

    def stop(self, grace_s: float = 120) -> int:
        type(self).stop_s = grace_s
        self.exit_code = -15 if self.exit_code is None else self.exit_code
        return self.exit_code

    def __enter__(self) -> "Scripted":
        return self

    def __exit__(self, *exc: object) -> None:
        pass


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    made = type("Scripted", (Scripted,), {})
    monkeypatch.setattr("launch.rehearse.nodes.sagemaker.run.Container", made)
    return made


def test_what_the_container_leaves_becomes_the_reason(scripted: type[Scripted], tmp_path: Path) -> None:
    scripted.code, scripted.text = 6, 'ExecuteUserScriptError:\nExitCode 6\nErrorMessage "boom"'
    with playing(tmp_path) as agent:
        client(agent, "sagemaker").create_training_job(**request(agent, "j"))
        described = agent.wait("j")

    assert described["TrainingJobStatus"] == "Failed"
    assert described["FailureReason"] == f"AlgorithmError: {scripted.text}, exit code: 6"
    assert described["FinalMetricDataList"][0]["Value"] == 0.75


@pytest.mark.parametrize(("retries", "ends"), [(1, "Restarting"), (0, "Failed")])
def test_a_job_whose_machine_dies_starts_again_as_often_as_it_may(
    scripted: type[Scripted], tmp_path: Path, retries: int, ends: str
) -> None:
    with playing(tmp_path) as agent:
        more = {"RetryStrategy": {"MaximumRetryAttempts": retries}} if retries else {}
        client(agent, "sagemaker").create_training_job(**request(agent, "j", **more))
        job = agent.account.jobs["j"]
        until(lambda: job.secondary == "Training")
        assert agent.runs["j"].end_abruptly("died")

        assert ends in job.statuses
        assert (agent.instances[0].how, agent.instances[0].state) == (
            "InternalServerError" if retries else "Failed",
            "off",
        )
        if retries:
            until(lambda: job.secondary == "Training")
            assert agent.instances[1].name == "algo-1 (2)"
        else:
            assert job.described["FailureReason"].startswith("InternalServerError: ")


def test_a_stopped_training_has_two_minutes_to_save_and_its_model_is_kept(
    scripted: type[Scripted], tmp_path: Path
) -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_StopTrainingJob.html: one that leaves earlier, as
    this one does at once, ends earlier."""
    with playing(tmp_path, stop_s=Rules().stop_s) as agent:
        client(agent, "sagemaker").create_training_job(**request(agent, "j"))
        until(lambda: agent.account.jobs["j"].secondary == "Training")
        client(agent, "sagemaker").stop_training_job(TrainingJobName="j")
        described = agent.wait("j")
        assert (described["TrainingJobStatus"], described["SecondaryStatus"]) == ("Stopped", "Stopped")
        assert agent.account.get(described["ModelArtifacts"]["S3ModelArtifacts"])
    assert scripted.stop_s == 120


@pytest.mark.parametrize(
    ("limit", "status"),
    [("MaxRuntimeInSeconds", "MaxRuntimeExceeded"), ("MaxWaitTimeInSeconds", "MaxWaitTimeExceeded")],
)
def test_limits_are_kept(scripted: type[Scripted], tmp_path: Path, limit: str, status: str) -> None:
    with playing(tmp_path) as agent:
        asked = request(agent, "j")
        client(agent, "sagemaker").create_training_job(**asked)
        until(lambda: agent.account.jobs["j"].secondary == "Training")
        agent.account.jobs["j"].described["StoppingCondition"][limit] = 0

        assert agent.wait("j")["SecondaryStatus"] == status


def test_a_spot_job_may_never_get_machines(scripted: type[Scripted], tmp_path: Path) -> None:
    with playing(tmp_path) as agent:
        agent.account.capacity[KIND] = 0
        client(agent, "sagemaker").create_training_job(**request(agent, "j"))
        until(lambda: agent.account.jobs["j"].described["SecondaryStatusTransitions"][-1]["StatusMessage"] == NO_ROOM)
        agent.account.jobs["j"].described["StoppingCondition"]["MaxWaitTimeInSeconds"] = 0

        assert agent.wait("j")["SecondaryStatus"] == "MaxWaitTimeExceeded"
        assert agent.log("j") == ""


def test_a_bucket_for_the_results_must_be_there(scripted: type[Scripted], tmp_path: Path) -> None:
    scripted.code = 0
    with playing(tmp_path) as agent:
        client(agent, "sagemaker").create_training_job(
            **request(agent, "j", OutputDataConfig={"S3OutputPath": "s3://nowhere/results"})
        )

        assert agent.wait("j")["FailureReason"] == "ClientError: The specified bucket does not exist"


def test_closing_leaves_no_thread(scripted: type[Scripted], tmp_path: Path) -> None:
    before = threading.active_count()
    with playing(tmp_path) as agent:
        client(agent, "sagemaker").create_training_job(**request(agent, "j"))
        until(lambda: agent.account.jobs["j"].secondary == "Training")

        agent.close()
        assert agent.account.left() == ["training job j (InProgress)"]
    assert threading.active_count() == before


def test_a_reason_is_as_long_as_aws_makes_it() -> None:
    assert failure_reason("x" * 5_000, 1).endswith("x, exit code: 1")
    assert len(failure_reason("x" * 5_000, 1)) == 1024
    assert failure_reason("", -9) == "AlgorithmError: , exit code: 137"
