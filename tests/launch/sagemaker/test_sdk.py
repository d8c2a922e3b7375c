"""SageMaker's SDK 2: the estimator sends the planned request, calls nobody else, and changes nothing of ours."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import boto3
import pytest

from launch.core.errors import NotSetUp
from launch.sagemaker import sdk
from launch.sagemaker.description import Description
from launch.sagemaker.request import OPERATION
from tests.conftest import ROOT
from tests.launch.sagemaker.known import NAME, plan
from tests.launch.sagemaker.world import Stage, checked_once
from trainer.errors import SettingsError

REMEDY = "run pip install -c constraints.txt -e '.[sagemaker]' in the checkout, or give --through boto3.\n"


def described(**settings: Any) -> Description:
    return plan(through="estimator", **settings).payload.description


def captured(description: Description) -> dict[str, Any]:
    """The request that the estimator would send."""
    keys = {"aws_access_key_id": "-", "aws_secret_access_key": "-"}
    session = boto3.Session(**keys, region_name=description.region)
    client, made = session.client("sagemaker"), list[dict[str, Any]]()
    client.meta.events.register(
        f"provide-client-params.sagemaker.{OPERATION}", lambda params, **_: made.append(deepcopy(dict(params)))
    )
    answer = (SimpleNamespace(status_code=200), {"TrainingJobArn": "-"})
    client.meta.events.register(f"before-call.sagemaker.{OPERATION}", lambda **_: answer)
    with checked_once():
        sdk._fit(description, session, client)
    (request,) = made
    return request


def of_the_estimator(**settings: Any) -> dict[str, Any]:
    return captured(described(**settings))


@contextmanager
def nobody_is_called() -> Iterator[list[object]]:
    """Meanwhile looking up a host or opening a connection fails and is recorded: the SDK would hide it."""
    called: list[object] = []

    def refuse(*args: Any, **named: Any) -> Any:
        called.append((args, named))
        raise AssertionError(f"called {args} {named}")

    with (
        mock.patch.multiple(socket.socket, connect=refuse, connect_ex=refuse),
        mock.patch.object(socket, "getaddrinfo", refuse),
    ):
        yield called


# ---- what it makes


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine that never heard of AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize("region", ["us-east-1", "eu-central-2"])
def test_the_estimator_calls_nobody_but_sagemaker(region: str) -> None:
    asked = described()
    captured(replace(asked, region=region))  # imports what it needs
    # boto3 has one session for all who do not bring theirs, and it may know credentials of other tests.
    with mock.patch("boto3.DEFAULT_SESSION", None), nobody_is_called() as called:
        made = captured(replace(asked, region=region))
    assert called == []
    assert made["TrainingJobName"] == NAME


def test_what_the_user_configured_for_the_sdk_does_not_change_the_request(nobody: Path) -> None:
    without = of_the_estimator()
    config = {
        "SchemaVersion": "1.0",
        "SageMaker": {
            "TrainingJob": {
                "RoleArn": "arn:aws:iam::111111111111:role/theirs",
                "VpcConfig": {"Subnets": ["subnet-9"], "SecurityGroupIds": ["sg-9"]},
                "Environment": {"THEIRS": "1"},
                "Tags": [{"Key": "theirs", "Value": "1"}],
                "EnableInterContainerTrafficEncryption": True,
            }
        },
    }
    for folder in (".config/sagemaker", "Library/Application Support/sagemaker"):
        (nobody / folder).mkdir(parents=True)
        (nobody / folder / "config.yaml").write_text(json.dumps(config))
    from sagemaker.config import config as module

    # What the SDK takes for the user's file was resolved when it was imported.
    with (
        mock.patch.object(module, "_DEFAULT_USER_CONFIG_FILE_PATH", str(nobody / ".config/sagemaker/config.yaml")),
        mock.patch.dict(os.environ, {"SAGEMAKER_USER_CONFIG_OVERRIDE": str(nobody / ".config/sagemaker/config.yaml")}),
    ):
        assert module.load_sagemaker_config()["SageMaker"]["TrainingJob"]["Environment"] == {"THEIRS": "1"}
        assert of_the_estimator() == without


EVERYTHING: dict[str, Any] = {
    "instance_type": "ml.p3.8xlarge",
    "nodes": 2,
    "distribution": "torch_distributed",
    "data": "train=s3://bucket/train,val=s3://bucket/val",
    "input_mode": "FastFile",
    "spot": True,
    "max_wait_hours": 30,
    "kms_key": "alias/ours",
    "subnet": "subnet-0123456789abcdef0,subnet-0123456789abcdef1",
    "security_group": "sg-0123456789abcdef0",
    "encrypt_traffic": True,
    "tags": "team=vision",
    "environment": "NCCL_DEBUG=INFO",
}
FILE_SYSTEMS: dict[str, Any] = {
    "data": "fsx://fs-0123456789abcdef0/fsx/imagenet",
    "warm_pool_s": 1800,
    "subnet": "subnet-0123456789abcdef0",
    "security_group": "sg-0123456789abcdef0",
}


def test_what_the_sdk_refuses_becomes_a_sentence() -> None:
    asked = described()
    options = asked.options.model_copy(update={"instance_type": "ml.p5.48xlarge"})
    wrong = replace(asked, resolved=replace(asked.resolved, options=options))
    with pytest.raises(SettingsError, match=r"^SageMaker's SDK refuses the job: .*[^.]\.$"):
        captured(wrong)


# ---- send


def test_a_request_that_differs_from_the_plan_is_not_sent() -> None:
    with Stage.opened() as stage:
        made = stage.plan()
        planned = dict(made.steps[-1].params)  # type: ignore[union-attr]
        for other in ({**planned, "RoleArn": "arn:aws:iam::123456789012:role/x"}, {**planned, "X": 1}):
            with pytest.raises(SettingsError, match="would send another request than planned"):
                sdk.send(made.payload.description, other, stage.aws)
        assert stage.account.jobs == {}
        sdk.send(made.payload.description, planned, stage.aws)
        assert list(stage.account.jobs) == [NAME]


def test_sending_leaves_nothing_on_the_client() -> None:
    with Stage.opened() as stage:
        made = stage.plan()
        planned = made.steps[-1].params  # type: ignore[union-attr]
        sdk.send(made.payload.description, planned, stage.aws)
        other = {**planned, "TrainingJobName": "another"}
        stage.aws.call("sagemaker", OPERATION, other)
        assert list(stage.account.jobs) == [NAME, "another"]


# ---- the import


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow("importing SageMaker's SDK calls nobody and prints nothing")
@pytest.mark.usefixtures("nobody")
def test_the_sdks_import_calls_nobody_prints_nothing_and_changes_neither_tracebacks_nor_logs() -> None:
    done = python(
        "import logging, os, socket, sys, warnings\n"
        "import tests.conftest\n"
        "called = []\n"
        "socket.socket.connect = lambda self, address: called.append(address)\n"
        "def state():\n"
        "    root = logging.root\n"
        "    return sys.excepthook, list(root.handlers), root.level, root.manager.disable, dict(os.environ)\n"
        "before, filters = state(), list(warnings.filters)\n"
        "from tests.launch.sagemaker.test_sdk import of_the_estimator\n"
        "of_the_estimator()\n"
        "assert called == [], called\n"
        "assert before == state(), (before, state())\n"
        "assert [f for f in warnings.filters if f in filters] == filters\n"
        "assert 'sagemaker.pytorch' in sys.modules\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("module", ["sagemaker", "sagemaker.pytorch"])
def test_without_the_sdk_or_with_its_version_3_the_user_learns_what_to_install(module: str) -> None:
    with mock.patch.dict(sys.modules, {module: None, "sagemaker.estimator": None}), pytest.raises(NotSetUp) as error:
        captured(described())
    assert str(error.value).endswith(REMEDY.strip())


def test_without_the_sdk_a_dry_run_still_shows_the_plan_and_a_launch_ends_with_the_remedy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("--job-name", NAME, "--through", "estimator")
    with Stage.opened() as stage, mock.patch.object(sdk, "is_installed", return_value=False):
        assert stage.type(*words, "--dry-run") == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert out.startswith(f"1 x ml.g5.2xlarge on SageMaker, job {NAME}\n")
        assert out.endswith(REMEDY)
        assert stage.type(*words) == 2
        assert capsys.readouterr().err.endswith(REMEDY)
        assert not {"PutObject", OPERATION} & set(stage.account.operations)
