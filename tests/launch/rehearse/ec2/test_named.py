"""What a command line names is there in a rehearsal; what cannot be is refused before anything starts."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from launch.core.aws import Aws
from launch.core.job import Job
from launch.ec2.checks import resolve
from launch.ec2.facts import Facts
from launch.ec2.lookup import look_up
from launch.ec2.options import Ec2Options
from launch.rehearse.aws.ec2 import seed
from launch.rehearse.aws.ec2.account import Account
from launch.rehearse.aws.ec2.moto_patches import mended
from launch.rehearse.stage.scene import Asked
from trainer.config import TrainConfig
from trainer.errors import SettingsError

NOW = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)
SUFFIX = "0123456789abcdef0"


@pytest.fixture
def account() -> Iterator[Account]:
    account = Account("us-east-1")
    with mock_aws(config={"core": {"mock_credentials": False}}), mended(account.rules):
        yield account


@pytest.fixture(autouse=True)
def _aws_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


def asked(dataset: str = "digits", data: Path | None = None, **where: Any) -> Asked:
    options = Ec2Options.model_validate({"region": "us-east-1", **where}).model_dump()
    return Asked("launch.ec2", (), "job", options, dataset, 4, {}, data=data)


def found(account: Account, what: Asked) -> Facts:
    """What a launcher finds in the account that is filled for `what`."""
    seed.check(what)
    seed.fill(account, what)
    job = Job(TrainConfig(dataset=what.dataset), Ec2Options.model_validate(what.options))
    return look_up(Aws("us-east-1"), resolve(job), "job", what.dataset, NOW)


def test_everything_that_is_named_is_found(account: Account, tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    what = asked(
        "imagefolder", tmp_path, nodes=2, bucket="mine", ami=f"ami-{SUFFIX}", image="me/train:v3",
        subnet=(f"subnet-{SUFFIX}", "subnet-0fedcba9876543210"), zones=("us-east-1c", "us-east-1a"),
        security_group=f"sg-{SUFFIX}", instance_profile="nodes", scheduler_role="timer",
        data_snapshot=f"snap-{SUFFIX}", capacity_reservation=f"cr-{SUFFIX}",
    )  # fmt: skip

    facts = found(account, what)

    assert facts.problems == ()
    assert facts.ami is not None
    assert facts.snapshot is not None
    assert facts.reservation is not None
    assert (facts.ami.id, facts.snapshot.id, facts.reservation.id) == (
        f"ami-{SUFFIX}",
        f"snap-{SUFFIX}",
        f"cr-{SUFFIX}",
    )
    assert [(s.id, s.zone) for s in facts.subnets] == [
        (f"subnet-{SUFFIX}", "us-east-1c"), ("subnet-0fedcba9876543210", "us-east-1a"),
    ]  # fmt: skip
    assert "/me/train@sha256:" in str(facts.image)
    assert str(facts.scheduler_role).endswith(":role/timer")


def test_an_image_named_by_its_digest_is_that_one(account: Account) -> None:
    digest = f"sha256:{64 * 'a'}"

    assert str(found(account, asked(image=f"aws-ddp-toolkit@{digest}")).image).endswith(f"@{digest}")


def test_data_in_s3_are_those_of_the_folder(account: Account, tmp_path: Path) -> None:
    (tmp_path / "train/cat").mkdir(parents=True)
    (tmp_path / "train/cat/1.png").write_bytes(b"an image")

    assert found(account, asked("imagefolder", tmp_path, data_s3="s3://pictures/all/of/them/")).problems == ()

    assert account.objects("pictures")["all/of/them/train/cat/1.png"].value == b"an image"


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        (asked("imagefolder"), "a rehearsal has no images of imagefolder; give it some: --rehearse-data FOLDER, "
                               "with train/ and val/."),
        (asked("digits", data_s3="s3://a/b"), "a rehearsal has no images of digits; give it some: --rehearse-data "
                                              "FOLDER, with train/ and val/."),
        (asked("cifar10"), "cifar10 would be downloaded, and nodes of a rehearsal have no Internet; give "
                           "--rehearse-data FOLDER with its archive, and --data-volume per-node. "
                           "Or rehearse with --dataset digits."),
        (asked("digits", Path("/")), "--rehearse-data: nothing brings data to the nodes with --dataset digits; "
                                     "add --dataset imagefolder, or --data-volume per-node."),
        (asked("imagenet", Path("/nowhere")), "--rehearse-data /nowhere: there is no such folder."),
        (asked("imagenet", Path("/etc")), "--rehearse-data /etc: has no folder train/ in it."),
        (asked(ami="my-ami"), "--ami my-ami: must look like ami-0123456789abcdef0."),
        (asked(subnet=("private",)), "--subnet private: must look like subnet-0123456789abcdef0."),
        (asked(region="us-east-9"), "--region us-east-9: AWS has no such region."),
    ],
)  # fmt: skip
def test_what_a_rehearsal_has_not_is_refused_with_what_to_do(what: Asked, sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        seed.check(what)

    assert str(refused.value) == sentence
