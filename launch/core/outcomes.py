"""outcome.json in a job's folder in S3: how the job ended, for status, sweep and report."""

from launch.core.aws import Aws
from launch.core.names import Folder
from trainer.contract import RESUME_PATTERN
from trainer.errors import TrainerError
from trainer.outcome import Outcome, parse


def resumed_by_name(reason: str, job: str) -> str:
    """The trainer's `reason` for whoever launched `job`: a launcher finds the run by its job's name."""
    return RESUME_PATTERN.sub(f"give the same command with --job-name {job}", reason)


def put_outcome(aws: Aws, folder: Folder, outcome: Outcome) -> str:
    """Writes outcome.json into the job's folder.  Returns a warning if that fails: the job's exit code stays."""
    content = outcome.as_json()
    try:
        aws.call("s3", "PutObject", {"Bucket": folder.bucket, "Key": folder.outcome, "Body": content})
    except TrainerError as error:
        return f"s3://{folder.bucket}/{folder.outcome} was not written: {error}"
    return ""


def get_outcome(aws: Aws, folder: Folder) -> Outcome | None:
    """The outcome in the job's folder; None if there is none, or it is damaged.  Raises AwsError."""
    content = aws.read(folder.bucket, folder.outcome)
    return None if content is None else parse(content)
