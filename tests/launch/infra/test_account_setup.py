"""The promise of infra/account.md: after `launch.infra up`, with an image and data, launchers find all they need."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from moto.ecr.models import ecr_backends
from moto.iam.models import iam_backends
from moto.ssm.models import ssm_backends

from launch.aws.containers import is_of_aws, newest
from launch.core.catalog import find
from launch.core.job import Job
from launch.core.training.classifier import Classifier
from launch.doctor.__main__ import main as doctor
from launch.doctor.commands import Runtime
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
EVERYTHING = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}


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


def test_a_job_starts_in_an_account_that_the_doctor_has_set_up(new: NewAccount) -> None:
    """From credentials alone: one command for the account, and no push."""
    ran, said = list[str](), list[str]()

    def run(words: Sequence[str]) -> int:
        ran.append(" ".join(words[2:]))
        code = new.type(*words[3:]) if words[2] == "launch.infra" else 1
        for documents in ssm_backends[new.id][new.region]._documents.values():
            for document in documents.versions.values():  # moto keeps CloudFormation's content as an object
                document.content = json.dumps(document.content)
        return code

    aws_side = rehearsed.Ec2Account(new.region)
    aws_side.make_ami()
    aws_side.add_internet_route()
    repository, tag = newest([find("g5.2xlarge")], "us-east-1", NOW.date()).uri.partition("/")[2].split(":")
    aws_side.make_image(repository, tag)
    iam = iam_backends[new.id]["aws"]
    iam.create_user("us-east-1", "moto")  # whom moto takes every caller for
    iam.put_user_policy("moto", "all", json.dumps(EVERYTHING))
    runtime = Runtime(lambda region: new.aws(region), say=said.append, run=run)
    flags = ["--nodes", "2", "--dataset", "cifar10"]

    assert doctor([*flags, "--fix", "--yes"], runtime) == 0, said[-1]

    assert ran == ["launch.infra up"]
    job = Job(Classifier(TrainConfig(dataset="cifar10")), Ec2Options(nodes=2))
    facts = look_up(new.aws(), checks.resolve(job), "j", "cifar10", NOW)
    assert (facts.problems, facts.unknown) == ((), ())
    assert is_of_aws(facts.image or "")
