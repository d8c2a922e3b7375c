"""The marker of a stop in a job's folder: one object, named after the start that it ends.

A launcher that waits for capacity, replaces lost nodes or tries another region looks for it, and leaves.  S3 writes it
once, and nothing rewrites it, as a launcher may rewrite job.json.  A job that is started again has a new start time,
and so no marker.
"""

from contextlib import suppress
from datetime import datetime

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.names import Folder
from launch.core.steps import put_once
from trainer.errors import TrainerError

STOPPED = "Stopped"  # our code for a job that was stopped


def marker_of(folder: Folder, started: datetime) -> str:
    """Where the marker of a start is.  In source/ launchers may write what does not exist yet: infra/iam."""
    return f"{folder.prefix}source/stopped-{int(started.timestamp())}"


def put_marker(aws: Aws, folder: Folder, started: datetime) -> None:
    """Marks this start as stopped; repeating it is fine.  Raises AwsError."""
    request = put_once(folder.bucket, marker_of(folder, started), b"", "mark the job as stopped")
    try:
        aws.call("s3", "PutObject", request.params)
    except AwsError as error:
        if error.aws_code != "PreconditionFailed":
            raise


def is_stopped(aws: Aws, folder: Folder, started: datetime) -> bool:
    """Whether this start was stopped by a command.  Raises AwsError."""
    return aws.read(folder.bucket, marker_of(folder, started)) is not None


def check_not_stopped(aws: Aws, folder: Folder, started: datetime, *, has_started: bool = False) -> None:
    """Raises AwsError if this start was stopped, or if that cannot be found out.

    has_started: nodes run, which are not ended because S3 does not answer.
    """
    stopped = False
    with suppress(*[TrainerError] if has_started else []):
        stopped = is_stopped(aws, folder, started)
    if stopped:
        raise AwsError(f"job {folder.job} was stopped by another command.", STOPPED)


def says_stopped(error: TrainerError) -> bool:
    """Whether the error is that of a stopped job; asking again does not help."""
    return isinstance(error, AwsError) and error.aws_code == STOPPED
