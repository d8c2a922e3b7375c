"""Names of a job's starts, as SageMaker accepts each training job's name only once; commands for a job.  Pure."""

import re
from hashlib import sha256

BACKEND = "sagemaker"
REGISTER_TAG = "aws-ddp-toolkit:register"
NOTEBOOK = "this notebook"  # as the source of a role
# How the SDK names a session's default bucket: sagemaker-REGION-ACCOUNT.  AmazonSageMakerFullAccess covers it.
SESSIONS_BUCKET = "sagemaker-"
ATTEMPT = "AWSBatch"  # how AWS Batch begins the names of its training jobs
OURS = 23  # characters of such a name: SageMaker takes 63, and what Batch adds has 40
_SEPARATOR = "--"


def start_name(job: str, number: int) -> str:
    """The name of the job's `number`-th training job, from 1: JOB, JOB--2, ..."""
    return job if number == 1 else f"{job}{_SEPARATOR}{number}"


def number_of(name: str, job: str) -> int | None:
    """The number of the start of `job` called `name`; None if it belongs to another job."""
    if name == job:
        return 1
    match = re.fullmatch(re.escape(job + _SEPARATOR) + r"([2-9]|[1-9][0-9]{1,3})", name)
    return int(match[1]) if match else None  # JOB--01 is not a start of JOB


def job_of(name: str) -> str:
    """The job whose training job is called `name`."""
    return re.sub(re.escape(_SEPARATOR) + r"\d{1,4}$", "", name)


def attempt_name(job: str) -> str:
    """The name to give to Batch for the training jobs of `job`, which that of no other job resembles."""
    if len(job) <= OURS:
        return job
    digest = sha256(job.encode()).hexdigest()[:6]
    return f"{job[: OURS - len(digest) - 1].rstrip('-')}-{digest}"


def attempt_prefix(job: str) -> str:
    """How the names of a job's training jobs in a queue begin; those of others may, too."""
    return f"{ATTEMPT}{attempt_name(job)}"


def command(verb: str, job: str, region: str, *flags: str) -> str:
    """A command line for a job, for users to paste."""
    return " ".join(["python -m launch.sagemaker", verb, job, *flags, "--region", region])
