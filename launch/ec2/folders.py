"""Which jobs a region knows, and where a job's folder lies.  Reads only."""

from collections.abc import Collection
from typing import Any, NoReturn

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.lookup import spec_of
from launch.core.names import Folder, bucket_of
from launch.ec2.fleet import Fleet
from launch.ec2.names import BACKEND
from trainer.errors import SettingsError
from trainer.settings.registry import did_you_mean


def folder_of(aws: Aws, fleet: Fleet, job: str, bucket: str | None) -> Folder:
    """Where the job's folder must be: in the bucket given, or that of its tags, or the toolkit's own."""
    known = bucket or fleet.buckets.get(job)
    if known is None:
        known = bucket_of(str(aws.call("sts", "GetCallerIdentity")["Account"]), aws.region)
    return Folder(known, job)


def jobs_in(aws: Aws, bucket: str) -> list[str]:
    """The jobs that have a folder in `bucket`; none where it cannot be listed."""
    query = {"Bucket": bucket, "Prefix": "jobs/", "Delimiter": "/"}
    try:
        found: list[dict[str, Any]] = aws.pages("s3", "ListObjectsV2", "CommonPrefixes", query)
    except AwsError:
        return []
    return [item["Prefix"].removeprefix("jobs/").rstrip("/") for item in found]


def is_known(aws: Aws, fleet: Fleet, folder: Folder) -> bool:
    """Whether there is, or was, such a job.  Raises AwsError where only its folder can tell, and cannot be read."""
    own = fleet.of(folder.job)
    return bool(own.nodes or own.things) or spec_of(aws, folder, BACKEND) is not None


def refuse_unknown(aws: Aws, fleet: Fleet, folder: Folder) -> NoReturn:
    """Raises SettingsError with the nearest name.  fleet: of all jobs."""
    known = sorted({*fleet.jobs, *jobs_in(aws, folder.bucket)})
    raise SettingsError(
        f"no job {folder.job!r} in {aws.region}{did_you_mean(folder.job, known) or '.'} "
        f"{running(fleet.jobs)} See python -m launch.ec2 status, and --region and --bucket if it is elsewhere."
    )


def needed(job: str | None, verb: str, fleet: Fleet) -> str:
    """`job`, or SettingsError that names those there are."""
    if job is not None:
        return job
    raise SettingsError(f"which job? python -m launch.ec2 {verb} JOB.  {running(fleet.jobs)}")


def running(jobs: Collection[str]) -> str:
    """A sentence that names jobs."""
    return f"There are: {', '.join(jobs)}." if jobs else "There is none now."
