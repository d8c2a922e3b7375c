"""The promise of infra/account.md: after `launch.infra up`, with an image and data, launchers find all they need."""

import json
from datetime import UTC, datetime

from moto.ecr.models import ecr_backends

from launch.core.job import Job
from launch.core.training.classifier import Classifier
from launch.ec2 import checks
from launch.ec2.lookup import look_up
from launch.ec2.options import Ec2Options
from launch.rehearse.aws.account import MANIFEST
from launch.rehearse.aws.ec2 import account as rehearsed
from launch.rehearse.aws.sagemaker.moto_patches import patched
from launch.rehearse.aws.sagemaker.rules import Rules
from launch.sagemaker import checks as sagemaker_checks
from launch.sagemaker.lookup import look_up as look_up_sagemaker
from launch.sagemaker.options import SageMakerOptions
from tests.launch.infra.account import NewAccount
from trainer.config import TrainConfig

NOW = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)


def push_image(new: NewAccount) -> str:
    """What `docker push` leaves, in the repository that is there."""
    kind = MANIFEST
    manifest = {"schemaVersion": 2, "mediaType": kind, "layers": [], "config": {"digest": "sha256:1"}}
    image = ecr_backends[new.id][new.region].put_image("aws-ddp-toolkit", json.dumps(manifest), "latest", kind)
    return str(image.get_image_digest())


def test_a_launch_on_ec2_finds_everything(new: NewAccount) -> None:
    assert new.type("up") == 0
    digest = push_image(new)
    aws_side = rehearsed.Ec2Account(new.region)  # what is AWS's own, or the user's data
    aws_side.make_ami()
    aws_side.make_snapshot("imagenet", 150)
    job = Job(Classifier(TrainConfig(dataset="imagenet")), Ec2Options(nodes=2))
    facts = look_up(new.aws(), checks.resolve(job), "j", "imagenet", NOW)

    assert (facts.problems, facts.unknown) == ((), ())
    assert facts.image == f"123456789012.dkr.ecr.us-east-1.amazonaws.com/aws-ddp-toolkit@{digest}"
    assert facts.scheduler_role == "arn:aws:iam::123456789012:role/aws-ddp-toolkit-scheduler"
    assert facts.has_log_group


def test_a_launch_on_sagemaker_finds_everything(new: NewAccount) -> None:
    assert new.type("up") == 0
    job = Job(
        Classifier(TrainConfig(dataset="cifar10")), SageMakerOptions.model_validate({"instance_type": "ml.g5.12xlarge"})
    )
    with patched(Rules()):
        facts = look_up_sagemaker(new.aws(), sagemaker_checks.resolve(job), "j", NOW)

    assert (facts.problems, facts.unknown) == ((), ())
    assert (facts.role, facts.role_from) == (
        "arn:aws:iam::123456789012:role/aws-ddp-toolkit-sagemaker",
        "stack aws-ddp-toolkit",
    )
    assert facts.bucket == new.bucket
