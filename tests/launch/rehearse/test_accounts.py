"""What a command line names exists in the rehearsal's account, or is refused before anything starts.

Every option, as far as the nodes' boot and the container's start, in this process; ec2/ and sagemaker/ go on.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from moto import mock_aws

from launch.aws.client import Aws
from launch.core.clock import Clock
from launch.core.training.classifier import Classifier
from launch.ec2.__main__ import main as on_ec2
from launch.ec2.backend import BACKEND
from launch.ec2.backend import Runtime as Ec2Runtime
from launch.ec2.options import Ec2Options
from launch.rehearse import accounts, rehearsal
from launch.rehearse.aws.ec2 import moto_patches as ec2_patches
from launch.rehearse.aws.ec2.account import Ec2Account
from launch.rehearse.aws.ec2.network import reached
from launch.rehearse.aws.sagemaker import moto_patches as sagemaker_patches
from launch.rehearse.aws.sagemaker.account import SageMakerAccount
from launch.rehearse.aws.server import served
from launch.rehearse.backend import RehearsedJob
from launch.rehearse.environment import entered
from launch.rehearse.nodes.ec2.node import KEY, TOKEN
from launch.rehearse.nodes.sagemaker.run import Agent, JobRun
from launch.sagemaker.__main__ import main as on_sagemaker
from launch.sagemaker.runtime import Runtime
from tests.launch.ec2.known import NAME
from tests.launch.faults import pauses, without_pauses
from trainer.config import TrainConfig
from trainer.errors import SettingsError

# ---- a launcher starts its job with it


SUFFIX = "0123456789abcdef0"
OURS = "aws-ddp-toolkit-123456789012-us-east-1"
REGISTRY = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
DIGEST = f"sha256:{64 * 'a'}"


class Started(BaseException):
    """The job has begun."""


def data(folder: Path) -> Path:
    (folder / "data/train/cat").mkdir(parents=True)
    (folder / "data/train/cat/1.png").write_bytes(b"an image")
    (folder / "data/val").mkdir()
    return folder / "data"


def job_of(main: Callable[[Sequence[str]], int], words: Sequence[str]) -> RehearsedJob:
    """The job that this command line rehearses."""
    jobs: list[RehearsedJob] = []

    def keep(job: RehearsedJob, *, is_terminal: bool) -> int:
        jobs.append(job)
        return 0

    with mock.patch.object(rehearsal, "rehearse", keep):
        assert main([*words, "--rehearse"]) == 0
    return jobs[0]


@contextmanager
def aws_of(account: Any, patches: Any, fill: Callable[[], None], job: RehearsedJob, role: str) -> Iterator[None]:
    """The rehearsal's AWS, for a launcher in this process that may do no more than in a rehearsal."""
    account.rules.access.throttling.now = pauses.now
    with mock_aws(config={"core": {"mock_credentials": False}}), patches(account.rules), without_pauses(), entered({}):
        fill()
        accounts.grant(account.rules.access, account.id, job, role, KEY, TOKEN)
        yield


@pytest.mark.parametrize(
    "words",
    [
        "--subnet subnet-X,subnet-0fedcba9876543210 --zones us-east-1c,us-east-1a --image me/train",
        "--subnet subnet-X --instance-type g6e.2xlarge --bucket mine --scheduler-role aws-ddp-toolkit-node",
        "--security-group sg-X --subnet subnet-X --ami ami-X --instance-profile nodes --scheduler-role timer",
        f"--nodes 2 --security-group sg-X --image {REGISTRY}/me/train:v3",
        f"--capacity-reservation cr-X --image me/train@{DIGEST} --instance-profile aws-ddp-toolkit-publisher",
        "--capacity-block cr-X --instance-type p5.48xlarge --image docker.io/me/train:v3",
        f"--image aws-ddp-toolkit@{DIGEST} --instance-profile both --scheduler-role both --bucket {OURS}",
        "--secret A=ssm:/mine,B=secretsmanager:mine,C=ssm:/mine",
        "--data-snapshot snap-X DATA",
        "--data-snapshot snap-X --nodes 2 --data-volume multi-attach DATA",
        "--data-s3 s3://mine/photos DATA",
        f"--data-s3 s3://{OURS}/data/raw DATA",
        "--bucket mine --data-s3 s3://mine DATA",
        "--data-url s3://mine/shards DATA",
        f"--data-url s3://{OURS}/data/shards DATA",
        "--data photos SCRIPT",
        "--region us-west-2,us-east-1 --image me/train:v3 --secret A=ssm:/mine --instance-profile nodes",
    ],
)
def test_what_a_job_on_ec2_names(words: str, tmp_path: Path) -> None:
    job = job_of(on_ec2, ["--job-name", NAME, *written(words, tmp_path)])
    account = Ec2Account(job.region)

    def fill() -> None:
        accounts.check_ec2(job)
        accounts.fill_ec2(account, job)
        for region in job.regions[1:]:
            accounts.fill_other_region(Ec2Account(region, rules=account.rules), job)

    def look(_seconds: float) -> None:
        if account.s3(f"jobs/{NAME}/cluster.json", job.bucket):
            assert [reached(account.ec2, instance) for instance in account.ec2.all_instances()] == [None] * job.nodes
            raise Started

    said: list[str] = []
    with aws_of(account, ec2_patches.patched, fill, job, "node"):
        runtime = Ec2Runtime(lambda region: Aws(region or job.region), Clock(sleep=look), said.append, results=tmp_path)
        with pytest.raises(Started):
            raise AssertionError((on_ec2(job.launch_words, runtime), said))


def written(words: str, folder: Path) -> list[str]:
    """The words of a command line, with a training and its data."""
    (folder / "train.py").touch()
    rehearsed = ["--rehearse-data", str(data(folder))]
    trainings = {
        "DATA": ["--dataset", "imagefolder", "--model", "cnn", "--image-size", "32", *rehearsed],
        "SCRIPT": ["--script", str(folder / "train.py"), *rehearsed],
    }
    *where, last = words.replace("-X", f"-{SUFFIX}").split()
    return [*where, *trainings.get(last, [last, "--dataset", "digits", "--model", "cnn"])]


@pytest.mark.parametrize(
    "words",
    [
        f"--bucket mine --role mine --image {REGISTRY}/me/train:v3 --experiment mine",
        f"--bucket {OURS} --role aws-ddp-toolkit-sagemaker --image {REGISTRY}/me/train@{DIGEST} --register mine",
        "--role arn:aws:iam::123456789012:role/mine --warm-pool-s 600 --secret A=ssm:/mine,B=secretsmanager:mine",
        "--role arn:aws:iam::999999999999:role/theirs",
        "--kms-key 1234abcd-12ab-34cd-56ef-1234567890ab --instance-type ml.p3.8xlarge",
        "--kms-key arn:aws:kms:us-east-1:123456789012:key/mine --instance-type ml.p3.8xlarge",
        "--training-plan arn:aws:sagemaker:us-east-1:123456789012:training-plan/mine --instance-type ml.p4d.24xlarge",
        "--mlflow-server arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/mine --mlflow mine",
        "--data s3://mine/photos --subnet subnet-X --security-group sg-X DATA",
        f"--data s3://{OURS}/data/raw DATA",
        "--data photos DATA",
        "--data train=s3://mine/a,val=s3://mine/b DATA",
        "--bucket mine --data s3://mine DATA",
        "--data fsx://fs-X/fsx/photos --subnet subnet-X --security-group sg-X DATA",
        "--data train=efs://fs-X/a,val=efs://fs-X/b --subnet subnet-X --security-group sg-X DATA",
        "--data-url s3://mine/shards DATA",
        "--data s3://mine/photos SCRIPT",
    ],
)
def test_what_a_job_on_sagemaker_names(words: str, tmp_path: Path) -> None:
    job = job_of(on_sagemaker, ["--job-name", NAME, "--through", "boto3", *written(words, tmp_path)])
    account = SageMakerAccount(job.region)

    def look(_seconds: float) -> None:
        if account.jobs:
            raise Started

    said: list[str] = []
    with aws_of(account, sagemaker_patches.patched, lambda: accounts.fill_sagemaker(account, job), job, "sagemaker"):
        clock = Clock(sleep=look)
        runtime = Runtime(Aws(job.region), clock, said.append, lambda: False, tmp_path)
        with pytest.raises(Started):
            raise AssertionError((on_sagemaker(job.launch_words, lambda _region: runtime), said))
        run = JobRun(Agent(account, "", served, tmp_path), next(iter(account.jobs.values())), tmp_path)
        run._fill(tmp_path / "ml")
    channels = [word for word in job.options["data"] if "train" in word or "=" not in word]
    assert len(list((tmp_path / "ml/input/data").rglob("1.png"))) == len(channels)


@pytest.fixture(autouse=True)
def _aws_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


def named(dataset: str = "digits", data: Path | None = None, **where: Any) -> RehearsedJob:
    options = Ec2Options.model_validate({"region": "us-east-1", **where}).model_dump()
    return RehearsedJob(BACKEND, (), "job", options, Classifier(TrainConfig(dataset=dataset)), {}, data=data)


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
        accounts.check_ec2(rehearsed)

    assert reason in str(refused.value)
