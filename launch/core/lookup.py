"""What every backend asks of AWS before a launch, and of a job's folder after it.  Reads only.

A backend's own questions are in its own lookup.py.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from launch.core.aws import Aws, granted_by
from launch.core.errors import AwsError, NotSetUp
from launch.core.names import TOOLKIT, Folder
from trainer.errors import SettingsError, TrainerError

Found = TypeVar("Found")

# Where a dry run without a configuration pretends to be: the catalog's prices are for it.
SOME_REGION = "us-east-1"

SET_UP = "python -m launch.infra up"


class Lookups:
    """Runs look-ups and collects their failures."""

    def __init__(self) -> None:
        self.problems: list[TrainerError] = []
        self.unknown: list[str] = []

    def required(self, ask: Callable[[], Found], otherwise: Found) -> Found:
        """What ask() finds; a failure becomes a problem of the plan."""
        try:
            return ask()
        except TrainerError as problem:
            self.problems.append(problem)
            return otherwise

    def optional(self, what: str, ask: Callable[[], Found], otherwise: Found) -> Found:
        """What ask() finds; a failure becomes a warning."""
        try:
            return ask()
        except TrainerError as problem:
            self.unknown.append(f"{what} could not be looked up: {problem}")
            return otherwise


def region_or_some(aws: Aws) -> str:
    """The region of `aws`, or SOME_REGION where none is configured."""
    try:
        return aws.region
    except NotSetUp:
        return SOME_REGION


def check_bucket(aws: Aws, bucket: str, account: str) -> None:
    """Raises AwsError if job folders cannot lie there.

    Names of buckets can be guessed and are anybody's to take, and what lies in a job's folder is believed: so the
    bucket must be the account's own.
    """
    try:
        answer = aws.call("s3", "HeadBucket", {"Bucket": bucket, "ExpectedBucketOwner": account})
    except AwsError as error:
        if error.aws_code in ("404", "NoSuchBucket"):
            make = SET_UP if bucket.startswith(TOOLKIT) else f"aws s3 mb s3://{bucket}"
            raise AwsError(f"there is no bucket {bucket}; make it ({make}), or give another with --bucket.") from error
        if error.aws_code in ("301", "PermanentRedirect"):
            raise AwsError(_elsewhere(bucket, "another region", aws.region)) from error
        if error.aws_code == "403":
            raise AwsError(
                f"bucket {bucket} is another account's, or these credentials may not look at it; give one of {account} "
                f"with --bucket, or ask for the policy in {granted_by('s3:ListBucket')}."
            ) from error
        raise
    region = answer.get("BucketRegion", aws.region)
    if region != aws.region:
        raise AwsError(_elsewhere(bucket, region, aws.region))


def _elsewhere(bucket: str, region: str, here: str) -> str:
    return f"bucket {bucket} is in {region} and the job would be in {here}; give one of {here} with --bucket."


def missing(error: AwsError, what: str, option: str) -> AwsError:
    """`error`, or, if it says that a role or profile is not there, one with a remedy.  what: 'role NAME'."""
    if error.aws_code != "NoSuchEntity":
        return error
    return AwsError(f"the account has no {what}; make it with {SET_UP}, or give another with {option}.")


def spec_of(aws: Aws, folder: Folder, backend: str) -> dict[str, Any] | None:
    """The job.json of `folder`, or None if there is no such job.  Raises SettingsError if it is another backend's."""
    spec = read_json(aws, folder.bucket, folder.spec)
    owner = (spec or {}).get("backend", backend)
    if owner != backend:
        raise SettingsError(
            f"{folder.job} is a job of launch.{owner}: see python -m launch.{owner} status {folder.job}, or choose "
            "another --job-name."
        )
    return spec


def read_json(aws: Aws, bucket: str, key: str) -> dict[str, Any] | None:
    """A JSON object in S3, or None if it is not there.  Raises AwsError; with the code NotJson if it is damaged."""
    try:
        body = aws.call("s3", "GetObject", {"Bucket": bucket, "Key": key})["Body"]
    except AwsError as error:
        if error.aws_code in ("NoSuchKey", "NoSuchBucket"):
            return None
        raise
    try:
        content: dict[str, Any] = json.loads(body.read())
    except ValueError as error:
        raise AwsError(f"s3://{bucket}/{key} is damaged: {error}; delete it.", "NotJson") from error
    return content
