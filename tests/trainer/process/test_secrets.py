"""The secrets of a SageMaker job: read by each rank, told to nobody."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws

from tests.conftest import Run
from trainer import sagemaker
from trainer.contract import Exit
from trainer.errors import MachineError, SettingsError
from trainer.process import secrets
from trainer.process.secrets import read_secrets

PLANTED = "planted-0f3c9a7e51"
ENV = {
    "AWS_REGION": "us-east-1",
    "DDP_SECRET_WANDB_API_KEY": "ssm:/ddp-toolkit/wandb",
    "DDP_SECRET_MLFLOW_TRACKING_PASSWORD": "secretsmanager:ddp-toolkit/mlflow",
}


@pytest.fixture
def region(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One that holds both secrets."""
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        boto3.client("ssm", "us-east-1").put_parameter(Name="/ddp-toolkit/wandb", Type="SecureString", Value=PLANTED)
        held = boto3.client("secretsmanager", "us-east-1")
        held.create_secret(Name="ddp-toolkit/mlflow", SecretString=PLANTED + "\nand more")
        held.create_secret(Name="ddp-toolkit/bytes", SecretBinary=PLANTED.encode())
        yield


@pytest.mark.usefixtures("region")
def test_what_the_environment_names_is_read() -> None:
    assert read_secrets(ENV) == {"WANDB_API_KEY": PLANTED, "MLFLOW_TRACKING_PASSWORD": PLANTED + "\nand more"}


def test_without_any_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)

    assert read_secrets({"SM_MODEL_DIR": "/opt/ml/model"}) == {}


def test_an_image_without_boto3_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)

    with pytest.raises(
        SettingsError, match=r"--secret needs boto3, which this image lacks; add it, or drop --secret\."
    ):
        read_secrets(ENV)


@pytest.mark.usefixtures("region")
def test_the_newline_at_the_end_of_a_file_that_was_stored_is_no_part_of_it() -> None:
    """As on the nodes of launch.ec2; in a header of HTTP it would end the training."""
    boto3.client("ssm", "us-east-1").put_parameter(Name="/ddp-toolkit/file", Value=f"{PLANTED}\n", Type="SecureString")

    assert read_secrets({"AWS_REGION": "us-east-1", "DDP_SECRET_KEY": "ssm:/ddp-toolkit/file"}) == {"KEY": PLANTED}


@pytest.mark.usefixtures("region")
@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        (
            "ssm:/ddp-toolkit/none",
            r"cannot read ssm:/ddp-toolkit/none \(ParameterNotFound\); create it in the job",
        ),
        ("secretsmanager:none", r"cannot read secretsmanager:none \(ResourceNotFoundException\); create it in the job"),
        ("secretsmanager:ddp-toolkit/bytes", "secretsmanager:ddp-toolkit/bytes is binary"),
    ],
)
def test_one_that_is_not_there_is_a_wrong_setting(where: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=f"--secret KEY: {sentence}"):
        read_secrets({"AWS_REGION": "us-east-1", "DDP_SECRET_KEY": where})


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (ClientError({"Error": {"Code": "AccessDeniedException", "Message": PLANTED}}, "GetParameter"), SettingsError,
         "--secret KEY: cannot read ssm:/a (AccessDeniedException); create it in the job's region, and allow the role "
         "to read it: see infra/account.md."),
        (ClientError({"Error": {"Code": "InternalServerError", "Message": PLANTED}}, "GetParameter"), MachineError,
         "cannot read ssm:/a for KEY (InternalServerError); start again."),
        (EndpointConnectionError(endpoint_url=PLANTED), MachineError,
         "cannot read ssm:/a for KEY (EndpointConnectionError); start again."),
    ],
)  # fmt: skip
def test_an_error_of_aws_is_named_and_not_repeated(error: Exception, kind: type[Exception], sentence: str) -> None:
    def refuse(**_: object) -> None:
        raise error

    client = boto3.client("ssm", "us-east-1", aws_access_key_id="-", aws_secret_access_key="-")
    client.meta.events.register("before-send.ssm", refuse)
    with pytest.raises(kind) as caught:
        secrets._value(_Session(client), None, "KEY", "ssm:/a")
    assert str(caught.value) == sentence


class _Session:
    """boto3's, with one client."""

    def __init__(self, client: object) -> None:
        self._client = client

    def client(self, *_: object, **__: object) -> object:
        return self._client


@pytest.mark.usefixtures("region")
def test_the_training_finds_them_in_its_environment_and_nobody_else_hears_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    seen = dict[str, str]()

    def train(argv: Sequence[str], env: Mapping[str, str]) -> int:
        assert PLANTED not in " ".join(argv)
        seen.update(env)
        return Exit.INTERRUPTED

    monkeypatch.setattr(sagemaker, "train", train)

    assert sagemaker.main([], {**ENV, "SM_MODEL_DIR": str(tmp_path / "model")}) == Exit.INTERRUPTED

    assert seen["WANDB_API_KEY"] == PLANTED
    assert PLANTED not in "".join(capfd.readouterr())


def test_a_rank_that_may_not_read_them_says_so_and_trains_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(env: Mapping[str, str]) -> dict[str, str]:
        raise SettingsError("--secret KEY: cannot read ssm:/a (AccessDenied).")

    monkeypatch.setattr(sagemaker, "read_secrets", refuse)

    assert sagemaker.main([], {}) == Exit.SETTINGS

    err = capfd.readouterr().err
    assert "error: --secret KEY: cannot read ssm:/a (AccessDenied).\n" in err
    assert "Exception: exit code 2: --secret KEY" in err


@pytest.mark.slow("a training leaves its trackers' keys nowhere")
def test_a_training_leaves_the_keys_of_its_trackers_nowhere(start_trainer: Run, tmp_path: Path) -> None:
    """wandb and MLflow for real, offline; a key of wandb's has 40 characters."""
    key = PLANTED.replace("planted-", "") * 4
    env = {"WANDB_API_KEY": key, "WANDB_MODE": "offline", "MLFLOW_TRACKING_PASSWORD": key, "HF_TOKEN": key,
           "MLFLOW_TRACKING_URI": ""}  # an earlier test's may be left: MLflow sets it  # fmt: skip

    done = start_trainer("--wandb", "project", "--mlflow", "experiment", "--tensorboard", "--epochs", "1", env=env)

    assert done.returncode == 0, done.stderr
    assert key not in done.stdout + done.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"mlflow.db", "config.yaml"} <= {path.name for path in files}, done.stdout + done.stderr
    assert any(path.suffix == ".wandb" for path in files)
    assert [path.name for path in files if key.encode() in path.read_bytes()] == []
