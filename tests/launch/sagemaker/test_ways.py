"""Three ways to one CreateTrainingJob: SDK 2's estimator, SDK 3's ModelTrainer, and boto3 alone."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from launch.sagemaker import ways
from launch.sagemaker.ways import OPERATION, estimator, model_trainer, plain
from tests import needs
from tests.conftest import ROOT
from tests.launch.sagemaker.known import NAME, request
from tests.launch.sagemaker.test_sdk import EVERYTHING, FILE_SYSTEMS
from tests.launch.sagemaker.through_sdk_3 import requests_of_sdk_3
from tests.launch.sagemaker.world import Stage
from trainer.errors import SettingsError

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
    "profiled, in an experiment": {"profiler": True, "experiment": "vision"},
    "MLflow": {"mlflow": "vision", "mlflow_server": SERVER},
    "secrets": {"secret": "WANDB_API_KEY=ssm:/ddp-toolkit/wandb", "wandb": "vision"},
}
# What SDK 2's estimator has no argument for.
BEYOND_SDK_2: Mapping[str, Mapping[str, Any]] = {
    "one of several types": {"instance_type": "ml.g5.12xlarge,ml.g6.12xlarge", "nodes": 2},
    "reserved, else on demand": {"instance_type": "ml.g5.12xlarge,ml.g6.12xlarge", "training_plan": PLAN},
    "MLflow, told to SageMaker": {"mlflow": "vision", "mlflow_server": SERVER, "mlflow_config": True},
    "waiting for instances": {"max_pending_hours": 6},
}
ALL = {**JOBS, **BEYOND_SDK_2}
PAGE = ROOT / "infra/sagemaker.md"


OfModelTrainer = Callable[[str], dict[str, Any]]
NAMED_BY = ("ChannelName", "Name", "Key", "InstanceType")


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """{path: leaf}.  Items of lists go by their names, so that an order does not count."""
    if isinstance(value, Mapping):
        return {k: v for name, inner in value.items() for k, v in flat(inner, f"{path}.{name}".lstrip(".")).items()}
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        names = [next(item[key] for key in NAMED_BY if key in item) for item in value]
        return flat(dict(zip(names, value, strict=True)), path)
    return {path: value}


@pytest.fixture(scope="module")
def sdk_3(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Any]]:
    """The ModelTrainer's requests for ALL."""
    return dict(zip(ALL, requests_of_sdk_3("ways-of-sdk-3", list(ALL.values()), tmp_path_factory), strict=True))


@pytest.fixture(scope="module")
def of_model_trainer(sdk_3: Mapping[str, list[Any]]) -> Callable[[str], dict[str, Any]]:
    """By job, what the ModelTrainer asks CreateTrainingJob for."""
    return lambda job: dict(sdk_3[job][-1]["params"])


SDK_3 = pytest.mark.slow("SDK 3's ModelTrainer makes the request of the same plan, but for the differences on the page")


def test_the_profiler_is_asked_for_as_the_estimator_does() -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ProfilerConfig.html"""
    asked = request(plain.WAY, profiler=True)
    assert flat(asked) == flat(request(estimator.WAY, profiler=True))
    assert asked["ProfilerConfig"] == {"S3OutputPath": asked["OutputDataConfig"]["S3OutputPath"],
                                       "DisableProfiler": False}  # fmt: skip
    assert request(plain.WAY)["ProfilerConfig"] == {"DisableProfiler": True}


def test_an_experiment_is_asked_for_as_the_estimator_does() -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ExperimentConfig.html: without a trial's name
    SageMaker makes one."""
    asked = request(plain.WAY, experiment="vision")
    assert flat(asked) == flat(request(estimator.WAY, experiment="vision"))
    assert asked["ExperimentConfig"] == {"ExperimentName": "vision", "TrialComponentDisplayName": NAME}
    assert "ExperimentConfig" not in request(plain.WAY)
    check_with_service_model(asked)


def test_a_shell_and_a_check_of_the_instances_are_asked_for_only_on_request() -> None:
    """API_RemoteDebugConfig.html, API_InfraCheckConfig.html: https://docs.aws.amazon.com/sagemaker/latest/APIReference/"""
    asked = request(plain.WAY, remote_debug=True, infra_check=True)
    assert asked["RemoteDebugConfig"] == {"EnableRemoteDebug": True}
    assert asked["InfraCheckConfig"] == {"EnableInfraCheck": True}
    assert not {"RemoteDebugConfig", "InfraCheckConfig"} & set(request(plain.WAY))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"data": "code=s3://bucket/c"}, "--data code=...: SageMaker's SDK 3 uses that name itself; choose another."),
    ],
)
def test_what_sdk_3_cannot_ask_for_is_refused_before_it_is_imported(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=f"^{re.escape(sentence)}$"):
        request(model_trainer.WAY, **settings)


@pytest.mark.parametrize("job", JOBS)
def test_boto3_alone_asks_for_what_the_estimator_asks_for(job: str) -> None:
    """Field by field, and there is no difference to explain."""
    settings = JOBS[job]
    assert flat(request(plain.WAY, **settings)) == flat(request(estimator.WAY, **settings))


@SDK_3
@needs.sagemaker_sdk_3()
@pytest.mark.parametrize("job", ALL)
def test_the_model_trainer_asks_for_the_same_but_for_what_the_page_explains(
    job: str, of_model_trainer: OfModelTrainer
) -> None:
    ours, theirs = flat(request(plain.WAY, **ALL[job])), flat(of_model_trainer(job))
    differing = {path for path in {*ours, *theirs} if ours.get(path) != theirs.get(path)}
    rows = explained()
    unexplained = {path for path in differing if not any(re.fullmatch(row, path) for row in rows)}
    assert unexplained == set()


@SDK_3
@needs.sagemaker_sdk_3()
def test_the_page_explains_no_difference_that_there_is_not(of_model_trainer: OfModelTrainer) -> None:
    pairs = [(flat(request(plain.WAY, **ALL[job])), flat(of_model_trainer(job))) for job in ALL]
    differing = {path for ours, theirs in pairs for path in {*ours, *theirs} if ours.get(path) != theirs.get(path)}
    assert [row for row in explained() if not any(re.fullmatch(row, path) for path in differing)] == []


def explained() -> list[str]:
    """The fields in the page's table of differences, as regular expressions."""
    text = (
        PAGE.read_text()
        .partition("what differs with `--through model-trainer`")[2]
        .partition("\n\n")[2]
        .partition("\n\n")[0]
    )
    cells = [row.split("|")[1] for row in text.splitlines() if row.startswith("| `")]
    names = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert len(names) >= 5
    return [re.escape(name).replace(r"\*", r"[\w.-]+") for name in names]


@SDK_3
@needs.sagemaker_sdk_3()
def test_the_model_trainer_asks_for_several_types_and_for_a_limit_of_waiting(of_model_trainer: OfModelTrainer) -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/dg/train-instance-preferences.html: also through the Python SDK."""
    types = [{"InstanceType": name} for name in ("ml.g5.12xlarge", "ml.g6.12xlarge")]
    machines = of_model_trainer("one of several types")["ResourceConfig"]
    assert machines == {"InstanceCount": 2, "InstancePreferences": types, "VolumeSizeInGB": 30}
    limits = of_model_trainer("waiting for instances")["StoppingCondition"]
    assert limits == {"MaxRuntimeInSeconds": 43_200, "MaxPendingTimeInSeconds": 21_600}


@SDK_3
@needs.sagemaker_sdk_3()
def test_own_settings_differ_only_in_how_they_are_written(of_model_trainer: OfModelTrainer) -> None:
    """AWS's toolkit reads JSON, and SDK 3's drivers read what is JSON or else the text itself."""
    for job, settings in ALL.items():
        ours, theirs = request(plain.WAY, **settings)["HyperParameters"], of_model_trainer(job)["HyperParameters"]
        assert {k: json.loads(v) for k, v in ours.items() if not k.startswith("sagemaker_")} == theirs


@SDK_3
@needs.sagemaker_sdk_3()
def test_what_the_model_trainer_would_upload_is_in_the_plan_before_the_job(sdk_3: Mapping[str, list[Any]]) -> None:
    *uploads, creation = sdk_3["several"]
    assert creation["operation"] == OPERATION
    (drivers,) = (
        channel["DataSource"]["S3DataSource"]["S3Uri"]
        for channel in creation["params"]["InputDataConfig"]
        if channel["ChannelName"] == "sm_drivers"
    )
    files = {f"s3://{one['params']['Bucket']}/{one['params']['Key']}": one["params"]["Body"] for one in uploads}
    assert all(uri.startswith(f"{drivers}/") for uri in files)
    assert "mpi_driver.py" in files[f"{drivers}/sm_train.sh"]
    assert json.loads(files[f"{drivers}/sourcecode.json"])["entry_script"] == "train.py"
    # Two hosts of four GPUs: the driver itself would ask mpirun for four ranks.
    options = json.loads(files[f"{drivers}/distributed.json"])["mpi_additional_options"]
    assert options[options.index("-np") + 1] == "8"


@pytest.mark.parametrize("way", [plain.WAY, estimator.WAY], ids=lambda way: way.name)
def test_the_trainers_mlflow_is_told_of_the_managed_server(way: ways.Way) -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/dg/mlflow-track-experiments.html: the ARN is the tracking URI."""
    asked = request(way, mlflow="vision", mlflow_server=SERVER)
    assert asked["Environment"]["MLFLOW_TRACKING_URI"] == SERVER
    assert asked["HyperParameters"]["mlflow"] == '"vision"'


def test_sagemaker_itself_is_told_of_the_server_only_on_request() -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_MlflowConfig.html"""
    asked = request(plain.WAY, mlflow="vision", mlflow_server=SERVER, mlflow_config=True)
    assert asked["MlflowConfig"] == {
        "MlflowResourceArn": SERVER, "MlflowExperimentName": "vision", "MlflowRunName": NAME}  # fmt: skip
    check_with_service_model(asked)
    assert "MlflowConfig" not in request(plain.WAY, mlflow="vision", mlflow_server=SERVER)
    with Stage.opened(detach=True, mlflow="vision", mlflow_server=SERVER, mlflow_config=True) as stage:
        stage.launch()  # by itself through boto3
        (sent,) = stage.account.asked(OPERATION)
        assert sent["MlflowConfig"] == asked["MlflowConfig"]


@pytest.mark.parametrize("job", ALL)
def test_aws_own_service_model_accepts_boto3_alone(job: str) -> None:
    check_with_service_model(request(plain.WAY, **ALL[job]))


@SDK_3
@needs.sagemaker_sdk_3()
@pytest.mark.parametrize("job", ALL)
def test_aws_own_service_model_accepts_the_model_trainer(job: str, of_model_trainer: OfModelTrainer) -> None:
    check_with_service_model(of_model_trainer(job))


def check_with_service_model(asked: Mapping[str, Any]) -> None:
    model = botocore.session.Session().get_service_model("sagemaker")
    report = ParamValidator().validate(dict(asked), model.operation_model(OPERATION).input_shape)
    assert not report.has_errors(), report.generate_report()


# ---- which way


@pytest.mark.parametrize(("installed", "name"), [("2.257.7", "estimator"), ("3.27.0", "boto3"), (None, "boto3")])
def test_the_estimator_is_the_way_where_sdk_2_is_installed_and_boto3_elsewhere(installed: str, name: str) -> None:
    def version_of(package: str) -> str:
        assert package == "sagemaker"
        if installed is None:
            raise PackageNotFoundError
        return installed

    assert ways.default(version_of) == name


def test_every_way_of_the_option_is_there() -> None:
    names = ("estimator", "model-trainer", "boto3")
    assert [ways.load(name).name for name in names] == list(names)


def test_a_job_starts_through_boto3_alone() -> None:
    with Stage.opened(detach=True, through="boto3", nodes=2) as stage:
        assert stage.launch() == 0
        assert list(stage.account.jobs) == [NAME]
        (asked,) = stage.account.asked(OPERATION)
        assert asked == stage.account.jobs[NAME].request
        assert asked["HyperParameters"]["sagemaker_program"] == '"train.py"'


def test_boto3_alone_does_without_the_sdk() -> None:
    program = (
        "import sys\n"
        "from launch.sagemaker.ways import plain\n"
        "from tests.launch.sagemaker.known import request\n"
        "request(plain.WAY, through='boto3')\n"
        "assert not {'sagemaker', 'boto3', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
