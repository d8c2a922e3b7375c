"""The role of a training job, and what launcher and job must be allowed."""

from collections.abc import Iterator, Mapping

from launch.aws.examination.case import (
    CARRIES,
    FOLDER,
    JOB_FOLDER,
    LOGS,
    OWN_ACCOUNT,
    READS_SOURCE,
    ROLE,
    TAGGED,
    Right,
    Verdict,
)
from launch.aws.examination.permissions import find_role, of_role, of_script, trusting
from launch.aws.upload import FOLDER as SOURCES
from launch.sagemaker import lookup
from launch.sagemaker.examination.shared import TrainingCase

SAGEMAKER = "arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/{JOB}"

LAUNCHER = [
    Right(["sagemaker:CreateTrainingJob"], [SAGEMAKER], TAGGED),
    Right(["sagemaker:AddTags"], [SAGEMAKER], {"sagemaker:TaggingAction": "CreateTrainingJob", **TAGGED}),
    Right(["sagemaker:StopTrainingJob", "sagemaker:UpdateTrainingJob"], [SAGEMAKER], CARRIES),
    Right(["iam:PassRole"], [f"{ROLE}{{JOB_ROLE}}"], {"iam:PassedToService": "sagemaker.amazonaws.com"}),
    Right(["logs:FilterLogEvents"], [f"{LOGS}/aws/sagemaker/TrainingJobs"]),
    *JOB_FOLDER,
]

TRAINING_JOB = [
    Right(["s3:GetObject", "s3:PutObject"], [f"{FOLDER}run/x"], OWN_ACCOUNT),
    Right(["logs:CreateLogStream", "logs:PutLogEvents"], [f"{LOGS}/aws/sagemaker/TrainingJobs:log-stream:x"]),
]

LISTS_SOURCES = [Right(["s3:ListBucket"], ["arn:aws:s3:::{BUCKET}"], {**OWN_ACCOUNT, "s3:prefix": f"{SOURCES}/x"})]


def names(case: TrainingCase) -> Mapping[str, str]:
    """The values of the {NAMES} that only these rights have."""
    return {"JOB_ROLE": _role_of(case)}


def _role_of(case: TrainingCase) -> str:
    """The name of the role that the training job would have."""
    return (case.resolved.options.role or lookup.ROLE).rpartition("/")[2]


def role(case: TrainingCase) -> Iterator[Verdict]:
    """It exists, and SageMaker may assume it."""
    yield trusting(case, find_role(case, _role_of(case), "--role"), ["sagemaker.amazonaws.com"], "sagemaker-trust")


def of_training_job(case: TrainingCase) -> Iterator[Verdict]:
    rights = [*TRAINING_JOB, *of_script(case, [*READS_SOURCE, *LISTS_SOURCES])]
    yield from of_role(case, _role_of(case), rights, "sagemaker")
