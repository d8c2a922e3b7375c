"""Look-ups that every backend makes before a launch, and in a job's folder after it.  Reads only.

Each backend has a lookup.py for those of its own.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from launch.core.aws import Aws
from launch.core.errors import AwsError, NotSetUp
from launch.core.names import TOOLKIT, Folder
from launch.core.published import MANIFEST, Content, content_in
from launch.core.refusals import granted_by
from launch.core.s3 import parse_s3
from trainer.errors import SettingsError, TrainerError

Found = TypeVar("Found")

# The region of a dry run without AWS configuration; the catalog's prices are this region's.
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
            if str(problem) not in map(str, self.problems):  # one failure can be met several times
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
    """Raises AwsError if the bucket cannot hold job folders.

    Anybody can create a bucket whose name can be guessed, and a job trusts what is in its folder, so the bucket must
    belong to the account.
    """
    try:
        answer = aws.call("s3", "HeadBucket", {"Bucket": bucket, "ExpectedBucketOwner": account})
    except AwsError as error:
        if error.aws_code in ("404", "NoSuchBucket"):
            make = SET_UP if bucket.startswith(TOOLKIT) else f"aws s3 mb s3://{bucket}"
            words = f"there is no bucket {bucket}; create it ({make}), or choose another with --bucket."
            raise AwsError(words, "NoSuchBucket") from error
        if error.aws_code in ("301", "PermanentRedirect"):
            raise AwsError(_elsewhere(bucket, "another region", aws.region)) from error
        if error.aws_code == "403":
            raise AwsError(
                f"bucket {bucket} belongs to another account, or these credentials may not read it; choose one of "
                f"{account} with --bucket, or ask for the policy in {granted_by('s3:ListBucket')}."
            ) from error
        raise
    region = answer.get("BucketRegion", aws.region)
    if region != aws.region:
        raise AwsError(_elsewhere(bucket, region, aws.region))


def _elsewhere(bucket: str, region: str, here: str) -> str:
    return f"bucket {bucket} is in {region} and the job would run in {here}; choose a bucket in {here} with --bucket."


def missing(error: AwsError, what: str, option: str) -> AwsError:
    """`error`, or one with a remedy if it says that a role or profile is missing.  what: 'role NAME'."""
    if error.aws_code != "NoSuchEntity":
        return error
    return AwsError(f"the account has no {what}; create it with {SET_UP}, or choose another with {option}.")


def spec_of(aws: Aws, folder: Folder, backend: str) -> dict[str, Any] | None:
    """The job.json of `folder`, or None if there is no such job.  Raises SettingsError if it is another backend's."""
    spec = read_json(aws, folder.bucket, folder.spec)
    owner = (spec or {}).get("backend", backend)
    if not isinstance(owner, str):
        raise AwsError(f"{folder.uri}/job.json is damaged: its backend is no text.", "NotJson")
    if owner != backend:
        raise SettingsError(
            f"{folder.job} is a job of launch.{owner}; see python -m launch.{owner} status {folder.job}, or choose "
            "another --job-name."
        )
    return spec


def content_at(aws: Aws, place: str | None) -> Content | None:
    """What a prepared data set in a folder of S3 holds; None where there is no manifest, or it cannot be read.

    Nothing but the forecast depends on it.
    """
    where = parse_s3(place) if place else None
    if where is None or not where.key.strip("/"):
        return None
    try:
        manifest = read_json(aws, where.bucket, f"{where.key.strip('/')}/{MANIFEST}")
        return content_in(manifest) if manifest else None
    except (TrainerError, AttributeError, KeyError, TypeError, ValueError):
        return None


def read_json(aws: Aws, bucket: str, key: str) -> dict[str, Any] | None:
    """A JSON object in S3, or None if it does not exist.  Raises AwsError, with the code NotJson if it is damaged."""
    text = aws.read(bucket, key)
    if text is None:
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AwsError(f"s3://{bucket}/{key} is damaged: {error}; delete it.", "NotJson") from error
    if not isinstance(content, dict):
        raise AwsError(f"s3://{bucket}/{key} is damaged: it is no object; delete it.", "NotJson")
    return content
