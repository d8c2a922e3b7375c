"""The CreateTrainingJob request: what it asks for, and that SDK 2's estimator makes the same one."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from launch.sagemaker import sdk
from launch.sagemaker.request import OPERATION
from tests.launch.sagemaker.known import NAME, request
from tests.launch.sagemaker.test_sdk import EVERYTHING, FILE_SYSTEMS, of_the_estimator
from tests.launch.sagemaker.world import Stage

VPC = {"subnet": "subnet-0123456789abcdef0", "security_group": "sg-0123456789abcdef0"}
SERVER = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/team"
PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/p5en-in-march"
JOBS: Mapping[str, Mapping[str, Any]] = {
    "one instance": {},
    "one instance, torchrun": {"distribution": "torch_distributed"},
    "several": {"instance_type": "ml.g5.12xlarge", "nodes": 2},
    "spot with checkpoints": {"spot": True, "max_wait_hours": 30, "data": "s3://bucket/x", "input_mode": "FastFile"},
    "FSx and KMS": {**VPC, "data": "fsx://fs-0123456789abcdef0/fsx/imagenet", "kms_key": "alias/ours"},
    "everything": EVERYTHING,
    "warm pool and FSx": FILE_SYSTEMS,
    "reserved": {"training_plan": PLAN},
    "bare": {"checkpoints": False, "max_restarts": 0},
    "watched": {"remote_debug": True, "infra_check": True},
    # https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ExperimentConfig.html, API_ProfilerConfig.html
    "profiled, in an experiment": {"profiler": True, "experiment": "vision"},
    "MLflow": {"mlflow": "vision", "mlflow_server": SERVER},
    "secrets": {"secret": "WANDB_API_KEY=ssm:/ddp-toolkit/wandb", "wandb": "vision"},
}
# What SDK 2's estimator has no argument for.
BEYOND_SDK_2: Mapping[str, Mapping[str, Any]] = {
    "one of several types": {"instance_type": "ml.g5.12xlarge,ml.g6.12xlarge", "nodes": 2},
    "reserved, else on demand": {"instance_type": "ml.g5.12xlarge,ml.g6.12xlarge", "training_plan": PLAN},
    "MLflow, known to SageMaker": {"mlflow": "vision", "mlflow_server": SERVER, "mlflow_config": True},
    "waiting for instances": {"max_pending_hours": 6},
}
ALL = {**JOBS, **BEYOND_SDK_2}


NAMED_BY = ("ChannelName", "Name", "Key", "InstanceType")


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """{path: leaf}.  Items of lists go by their names, so that an order does not count."""
    if isinstance(value, Mapping):
        return {k: v for name, inner in value.items() for k, v in flat(inner, f"{path}.{name}".lstrip(".")).items()}
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        names = [next(item[key] for key in NAMED_BY if key in item) for item in value]
        return flat(dict(zip(names, value, strict=True)), path)
    return {path: value}


def test_a_shell_and_a_check_of_the_instances_are_optional() -> None:
    """API_RemoteDebugConfig.html, API_InfraCheckConfig.html: https://docs.aws.amazon.com/sagemaker/latest/APIReference/"""
    asked = request(remote_debug=True, infra_check=True)
    assert asked["RemoteDebugConfig"] == {"EnableRemoteDebug": True}
    assert asked["InfraCheckConfig"] == {"EnableInfraCheck": True}
    assert not {"RemoteDebugConfig", "InfraCheckConfig"} & set(request())


# Each by SDK 2 itself, which takes a quarter of a second; boto3 alone makes all of them.
@pytest.mark.parametrize(
    "job", ["one instance", "several", "spot with checkpoints", "FSx and KMS", "everything", "watched",
            "profiled, in an experiment"]
)  # fmt: skip
def test_boto3_alone_sends_the_estimators_request(job: str) -> None:
    """Field by field, and there is no difference to explain."""
    settings = JOBS[job]
    assert flat(request(**settings)) == flat(of_the_estimator(**settings))


def test_a_profiler_and_an_experiment_are_optional() -> None:
    asked = request(profiler=True, experiment="vision")
    assert asked["ProfilerConfig"]["DisableProfiler"] is False
    assert asked["ExperimentConfig"] == {"ExperimentName": "vision", "TrialComponentDisplayName": NAME}
    assert request()["ProfilerConfig"] == {"DisableProfiler": True}
    assert "ExperimentConfig" not in request()


def test_the_trainers_mlflow_gets_the_managed_server() -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/dg/mlflow-track-experiments.html: the ARN is the tracking URI."""
    asked = request(mlflow="vision", mlflow_server=SERVER)
    assert asked["Environment"]["MLFLOW_TRACKING_URI"] == SERVER
    assert asked["HyperParameters"]["mlflow"] == '"vision"'


def test_sagemaker_itself_gets_the_mlflow_server_only_on_request() -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_MlflowConfig.html"""
    asked = request(mlflow="vision", mlflow_server=SERVER, mlflow_config=True)
    assert asked["MlflowConfig"] == {
        "MlflowResourceArn": SERVER, "MlflowExperimentName": "vision", "MlflowRunName": NAME}  # fmt: skip
    check_with_service_model(asked)
    assert "MlflowConfig" not in request(mlflow="vision", mlflow_server=SERVER)
    with Stage.opened(detach=True, mlflow="vision", mlflow_server=SERVER, mlflow_config=True) as stage:
        stage.launch()  # by itself through boto3
        (sent,) = stage.account.asked(OPERATION)
        assert sent["MlflowConfig"] == asked["MlflowConfig"]


def test_aws_own_service_model_accepts_boto3_alone() -> None:
    for job in ALL:
        check_with_service_model(request(**ALL[job]))


def check_with_service_model(asked: Mapping[str, Any]) -> None:
    model = botocore.session.Session().get_service_model("sagemaker")
    report = ParamValidator().validate(dict(asked), model.operation_model(OPERATION).input_shape)
    assert not report.has_errors(), report.generate_report()


# ---- which way


@pytest.mark.parametrize(("installed", "is_sdk_2"), [("2.257.7", True), ("3.27.0", False), (None, False)])
def test_the_estimator_is_the_default_only_where_sdk_2_is_installed(installed: str, is_sdk_2: bool) -> None:
    def version_of(package: str) -> str:
        assert package == "sagemaker"
        if installed is None:
            raise PackageNotFoundError
        return installed

    assert sdk.is_installed(version_of) == is_sdk_2


def test_a_job_starts_through_boto3_alone() -> None:
    with Stage.opened(detach=True, through="boto3", nodes=2) as stage:
        assert stage.launch() == 0
        assert list(stage.account.jobs) == [NAME]
        (asked,) = stage.account.asked(OPERATION)
        assert asked == stage.account.jobs[NAME].request
        assert asked["HyperParameters"]["sagemaker_program"] == '"train.py"'
