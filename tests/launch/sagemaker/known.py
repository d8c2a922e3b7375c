"""A job and the facts of an account, as literals: what the planner's tests plan with."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from launch.aws.names import tags
from launch.core.job import Job
from launch.core.training.classifier import Classifier
from launch.sagemaker import checks, planner
from launch.sagemaker.backend import BACKEND
from launch.sagemaker.facts import Facts, Quota
from launch.sagemaker.options import SageMakerOptions, Through
from launch.sagemaker.training_job import TrainingJob
from trainer.config import TrainConfig
from trainer.settings import flags

NOW = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)
NAME = "cifar10-1"
ROLE = "arn:aws:iam::123456789012:role/aws-ddp-toolkit-sagemaker"
BUCKET = "aws-ddp-toolkit-123456789012-us-east-1"

FACTS = Facts(
    region="us-east-1",
    now=NOW,
    account="123456789012",
    role=ROLE,
    role_from="stack aws-ddp-toolkit",
    bucket=BUCKET,
    quotas=(Quota("ml.g5.2xlarge for training job usage", 4, 1),),
)

TRAINING_JOB = TrainingJob(
    name=NAME,
    region="us-east-1",
    status="InProgress",
    detail="Training",
    transitions=(("Training", "Training image download completed. Training in progress."),),
    created=NOW - timedelta(hours=1),
    started=NOW - timedelta(minutes=50),
    ended=None,
    trained_s=None,
    billed_s=None,
    failure="",
    instance_type="ml.g5.12xlarge",
    nodes=2,
    disk_gb=0,
    is_spot=False,
    max_run_s=86_400,
    max_wait_s=None,
    max_pending_s=None,
    keep_s=0,
    model=None,
    checkpoints=f"s3://{BUCKET}/jobs/{NAME}/run",
    hyperparameters={"epochs": '"3"', "sagemaker_program": '"train.py"'},
    pool=None,
    pool_s=0,
    tags={tag["Key"]: tag["Value"] for tag in tags(NAME, BUCKET, NOW)},
)


def training_job(**changes: Any) -> TrainingJob:
    """A training job as SageMaker describes it."""
    return replace(TRAINING_JOB, **changes)


def job(**settings: Any) -> Job[SageMakerOptions]:
    """What the command line makes of these settings."""
    where, train = flags.build({**BACKEND.defaults, "job_name": NAME, **settings}, [SageMakerOptions, TrainConfig])
    return Job(Classifier(cast(TrainConfig, train)), cast(SageMakerOptions, where))


def typed(verb: str, job: str = NAME) -> str:
    """The command for a job, as every command prints it for pasting."""
    return f"python -m launch.sagemaker {verb} {job} --region us-east-1"


def resolve(**settings: Any) -> checks.Resolved:
    return checks.resolve(job(**settings))


def plan(facts: Facts = FACTS, through: Through = "boto3", **settings: Any) -> planner.SageMakerPlan:
    asked = job(**settings)
    quotas = tuple(replace(quota, needed=asked.where.nodes) for quota in facts.quotas)  # as look_up does
    facts = replace(facts, quotas=quotas)
    return planner.plan(asked, checks.resolve(asked), asked.where.job_name or NAME, facts, through)


def request(**settings: Any) -> Mapping[str, Any]:
    """The CreateTrainingJob of these settings."""
    return plan(**settings).steps[-1].params  # type: ignore[union-attr]
