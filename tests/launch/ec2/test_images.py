"""A job needs no push: without an image of the toolkit its nodes run AWS's, and the trainer is sent beside it."""

import io
import json
import tarfile
from datetime import UTC, datetime
from unittest import mock

import pytest
from moto.ecr.models import ecr_backends
from moto.iam.models import iam_backends

from launch.aws import containers
from launch.aws.containers import toolkit
from launch.aws.names import ROLES_TAG, SCHEDULER_ROLE, STACK_TAG
from launch.core import catalog
from launch.core.training.classifier import Classifier
from launch.ec2.__main__ import main
from launch.rehearse.aws.iam import policies
from tests.launch.ec2.account import Account
from tests.launch.privilege.enforced import enforced
from trainer.config import TrainConfig

REGISTRY = "763104351884.dkr.ecr.us-east-1.amazonaws.com"


@pytest.fixture(params=["no repository", "an empty one"])
def new_account(account: Account, request: pytest.FixtureRequest) -> Account:
    """One in which nothing was pushed: `launch.infra up` makes the repository.  moto keeps AWS's images in it, too."""
    ecr = ecr_backends[account.id][account.region]
    ecr.delete_repository("aws-ddp-toolkit", account.id, force=True)
    if request.param == "an empty one":
        account.aws().call("ecr", "CreateRepository", {"repositoryName": "aws-ddp-toolkit"})
    repository, tag = newest().partition("/")[2].split(":")
    account.make_image(repository, tag)
    return account


def newest() -> str:
    return containers.newest([catalog.find("g5.2xlarge")], "us-east-1", datetime.now(UTC).date()).uri


def test_the_nodes_of_a_new_account_run_awss_image_with_the_trainer_beside_it(
    new_account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--nodes", "2", "--dataset", "cifar10", "--dry-run=json"]) == 0

    plan = json.loads(capsys.readouterr().out)
    assert plan["facts"]["image"].startswith(f"{newest().rpartition(':')[0]}@sha256:")
    send, *_ = plan["steps"]
    (start,) = [step for step in plan["steps"] if "first_that_succeeds" in step]
    user_data = start["first_that_succeeds"][0]["params"]["UserData"]
    assert send["params"]["Key"] in user_data
    assert f"REGISTRY={REGISTRY}" in user_data


def test_what_is_sent_has_the_trainer_and_its_packages_by_hash() -> None:
    sent = toolkit(Classifier(TrainConfig(mlflow="x")), containers.lacking())
    with tarfile.open(fileobj=io.BytesIO(sent.content)) as archive:
        names = archive.getnames()
        packages = archive.extractfile("packages.txt")
        assert packages is not None
        lines = packages.read().decode()
    assert {"trainer/torchrun.py", "trainer/__main__.py"} <= set(names)
    assert all(name in lines for name in ("simplejpeg==", "nvidia-ml-py==", "mlflow-skinny==", "--hash=sha256:"))


def test_an_image_that_is_named_must_be_there(new_account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dataset", "cifar10", "--image", "my-image", "--dry-run"]) == 4
    assert "my-image" in capsys.readouterr().out


def test_the_policies_of_an_ec2_launcher_are_enough(new_account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    with mock.patch.dict(policies.FILES, {"ec2-only": ("launcher", "reader")}), enforced(new_account, "ec2-only"):
        assert main(["--nodes", "2", "--dataset", "cifar10", "--dry-run"]) == 0
    assert "node.json" not in capsys.readouterr().out


def test_a_stack_whose_nodes_may_not_pull_it_is_a_problem(
    new_account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    tags = [{"Key": STACK_TAG, "Value": "us-east-1"}, {"Key": ROLES_TAG, "Value": "3"}]
    iam_backends[new_account.id]["aws"].tag_role(SCHEDULER_ROLE, tags)
    assert main(["--nodes", "2", "--dataset", "cifar10", "--dry-run"]) == 4
    assert "problem: nodes may not pull AWS's image" in capsys.readouterr().out
