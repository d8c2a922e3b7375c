"""launch.rehearse.aws.ec2.seed: what a command line names exists in a rehearsal, or is refused before it starts."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from launch.aws.client import Aws
from launch.core.job import Job
from launch.core.training.classifier import Classifier
from launch.ec2.backend import BACKEND
from launch.ec2.checks import resolve
from launch.ec2.facts import Facts
from launch.ec2.lookup import look_up
from launch.ec2.options import Ec2Options
from launch.rehearse.aws.ec2 import seed
from launch.rehearse.aws.ec2.account import Ec2Account
from launch.rehearse.aws.ec2.moto_patches import patched
from launch.rehearse.stage.scene import RehearsedJob
from trainer.config import TrainConfig
from trainer.errors import SettingsError

NOW = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)
SUFFIX = "0123456789abcdef0"


@pytest.fixture
def account() -> Iterator[Ec2Account]:
    account = Ec2Account("us-east-1")
    with mock_aws(config={"core": {"mock_credentials": False}}), patched(account.rules):
        yield account


@pytest.fixture(autouse=True)
def _aws_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


def named(dataset: str = "digits", data: Path | None = None, **where: Any) -> RehearsedJob:
    options = Ec2Options.model_validate({"region": "us-east-1", **where}).model_dump()
    return RehearsedJob(BACKEND, (), "job", options, Classifier(TrainConfig(dataset=dataset)), {}, data=data)


def facts_for(account: Ec2Account, rehearsed: RehearsedJob) -> Facts:
    """What a launcher looks up in the account that is set up for this job."""
    seed.check(rehearsed)
    seed.fill(account, rehearsed)
    job = Job(rehearsed.train, Ec2Options.model_validate(rehearsed.options))
    return look_up(Aws("us-east-1"), resolve(job), "job", rehearsed.train.dataset, NOW)


def test_everything_that_is_named_is_found(account: Ec2Account, tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    rehearsed = named(
        "imagefolder", tmp_path, nodes=2, bucket="mine", ami=f"ami-{SUFFIX}", image="me/train:v3",
        subnet=(f"subnet-{SUFFIX}", "subnet-0fedcba9876543210"), zones=("us-east-1c", "us-east-1a"),
        security_group=f"sg-{SUFFIX}", instance_profile="nodes", scheduler_role="timer",
        data_snapshot=f"snap-{SUFFIX}", capacity_reservation=f"cr-{SUFFIX}",
    )  # fmt: skip

    facts = facts_for(account, rehearsed)

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


def test_an_image_named_by_its_digest_is_that_one(account: Ec2Account) -> None:
    digest = f"sha256:{64 * 'a'}"

    assert str(facts_for(account, named(image=f"aws-ddp-toolkit@{digest}")).image).endswith(f"@{digest}")


def test_data_in_s3_are_those_of_the_folder(account: Ec2Account, tmp_path: Path) -> None:
    (tmp_path / "train/cat").mkdir(parents=True)
    (tmp_path / "train/cat/1.png").write_bytes(b"an image")

    assert facts_for(account, named("imagefolder", tmp_path, data_s3="s3://pictures/all/of/them/")).problems == ()

    assert account.objects("pictures")["all/of/them/train/cat/1.png"].value == b"an image"


@pytest.mark.parametrize(
    ("rehearsed", "reason"),
    [
        (named("imagefolder"), "add --rehearse-data FOLDER"),
        (named("digits", data_s3="s3://a/b"), "add --rehearse-data FOLDER"),
        (named("cifar10"), "rehearse with --dataset digits"),
        (named("digits", Path("/")), "add --dataset imagefolder, or --data-volume per-node"),
        (named("imagenet", Path("/nowhere")), "--rehearse-data /nowhere: no such folder"),
        (named("imagenet", Path("/etc")), "--rehearse-data /etc: has no folder train/"),
        (named(ami="my-ami"), "--ami my-ami: must look like ami-0123456789abcdef0."),
        (named(subnet=("private",)), "--subnet private: must look like subnet-0123456789abcdef0."),
        (named(region="us-east-9"), "--region us-east-9: AWS has no such region"),
    ],
)  # fmt: skip
def test_what_a_rehearsal_cannot_have_is_refused_with_a_remedy(rehearsed: RehearsedJob, reason: str) -> None:
    with pytest.raises(SettingsError) as refused:
        seed.check(rehearsed)

    assert reason in str(refused.value)
