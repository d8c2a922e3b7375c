"""The note of a stop in a job's folder, which nobody can take back.

Every launcher may write job.json, and so may put back what stood there before a stop: a launcher that waits for
capacity, or that replaces lost nodes, would go on with a job whose owner was told that nothing is left.  In source/ IAM
lets launchers write what does not exist yet and nothing else, and none of the toolkit's roles delete there.  Whoever
writes such a note himself ends a job that he could end by job.json as well.
"""

from contextlib import suppress
from uuid import uuid4

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.names import Folder
from launch.core.steps import put_once
from trainer.errors import TrainerError

MOST = 1000  # notes that are listed, with one request; whoever makes as many hides none
STOPPED = "Stopped"  # our code for a job that somebody has stopped


def note(aws: Aws, folder: Folder) -> None:
    """Notes that the job is stopped, under a name that nobody can have taken before.  Raises AwsError."""
    request = put_once(folder.bucket, f"{_prefix(folder)}{uuid4().hex}", b"", "note the stop")
    aws.call("s3", "PutObject", request.params)


def notes(aws: Aws, folder: Folder) -> frozenset[str]:
    """The notes of all stops so far, those of earlier starts among them.  Raises AwsError."""
    query = {"Bucket": folder.bucket, "Prefix": _prefix(folder)}
    listed = aws.pages("s3", "ListObjectsV2", "Contents", query, most=MOST)
    return frozenset(item["Key"] for item in listed)


def check_wanted(aws: Aws, folder: Folder, known: frozenset[str], *, has_started: bool = False) -> None:
    """Raises AwsError if the job was stopped since its notes were `known`, or if nobody can tell.

    has_started: that they cannot be listed is no reason to end what runs.
    """
    found = known
    with suppress(*[TrainerError] if has_started else []):
        found = notes(aws, folder)
    if found - known or len(found) >= MOST:
        raise AwsError(f"job {folder.job} was stopped by another command.", STOPPED)


def is_stopped(error: TrainerError) -> bool:
    """Whether it says so; asking again does not help."""
    return isinstance(error, AwsError) and error.aws_code == STOPPED


def _prefix(folder: Folder) -> str:
    return f"{folder.prefix}source/stopped-"
