"""Which jobs exist in a region, and where their folders are.  Reads only."""

from collections.abc import Collection
from typing import Any, NoReturn

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.names import Folder, bucket_of
from launch.ec2.fleet import Fleet
from launch.ec2.names import BACKEND_NAME
from launch.ec2.written import spec_of
from trainer.errors import SettingsError
from trainer.settings.registry import did_you_mean


def folder_of(aws: Aws, fleet: Fleet, job: str, bucket: str | None) -> Folder:
    """The job's folder: in the bucket given, else in that of its tags, else in the toolkit's own."""
    known = bucket or fleet.buckets.get(job)
    if known is None:
        known = bucket_of(str(aws.call("sts", "GetCallerIdentity")["Account"]), aws.region)
    return Folder(known, job)


def jobs_in(aws: Aws, bucket: str) -> list[str]:
    """The jobs that have a folder in `bucket`; empty if it cannot be listed."""
    query = {"Bucket": bucket, "Prefix": "jobs/", "Delimiter": "/"}
    try:
        folders: list[dict[str, Any]] = aws.pages("s3", "ListObjectsV2", "CommonPrefixes", query)
    except AwsError:
        return []
    return [folder["Prefix"].removeprefix("jobs/").rstrip("/") for folder in folders]


def is_known(aws: Aws, fleet: Fleet, folder: Folder) -> bool:
    """Whether there is or was such a job.  Raises AwsError if only its folder can tell, and cannot be read."""
    own = fleet.of(folder.job)
    return bool(own.nodes or own.resources) or spec_of(aws, folder, BACKEND_NAME) is not None


def known_folder(aws: Aws, fleet: Fleet, job: str, bucket: str | None) -> Folder:
    """The folder of `job`.  Raises SettingsError for a job that never existed.  fleet: of all jobs."""
    folder = folder_of(aws, fleet, job, bucket)
    if not is_known(aws, fleet, folder):
        refuse_unknown(aws, fleet, folder)
    return folder


def refuse_unknown(aws: Aws, fleet: Fleet, folder: Folder) -> NoReturn:
    """Raises SettingsError with the nearest name.  fleet: of all jobs."""
    known = sorted({*fleet.jobs, *jobs_in(aws, folder.bucket)})
    raise SettingsError(
        f"no job {folder.job!r} in {aws.region}{did_you_mean(folder.job, known) or '.'} {running(fleet.jobs)} "
        "For other regions and buckets give --region and --bucket."
    )


def needed(job: str | None, verb: str, fleet: Fleet) -> str:
    """`job`.  Raises SettingsError that names the running jobs if it is None."""
    if job is not None:
        return job
    raise SettingsError(f"no job given; use python -m launch.ec2 {verb} JOB.  {running(fleet.jobs)}")


def running(jobs: Collection[str]) -> str:
    """A sentence that names jobs."""
    return f"Running: {', '.join(jobs)}." if jobs else "None is running."
