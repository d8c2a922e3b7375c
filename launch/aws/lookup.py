"""Look-ups of every backend: images in ECR, buckets, roles, and a job's folder after it.  Reads only.

Each backend has its own lookup.py for others.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

from launch.aws.client import SMALL_BYTES, Aws
from launch.aws.names import ROLES_TAG, ROLES_VERSION, STACK_TAG, TOOLKIT, Folder, parse_s3, tag_values
from launch.aws.refusals import granted_by
from launch.aws.upload import checksum, key_of
from launch.core.earlier import Earlier, Setting, is_same_script, setting_in, took
from launch.core.errors import AwsError, NotSetUp
from launch.core.job import are_default, stem_of
from launch.core.manifest import MANIFEST, Content, content_in
from launch.core.training.base import Training
from trainer.contract import METRICS, OUTCOME, PACE
from trainer.errors import SettingsError, TrainerError
from trainer.outcome import parse
from trainer.script.pace import parse as parse_pace

PLACE = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?/(?P<name>[^:@]+)"
    r"(:(?P<tag>[^:@]+))?(@(?P<digest>sha256:[0-9a-f]{64}))?"
)
# Docker's and OCI's media types, of images and of lists of images for several platforms.
MANIFESTS = ("application/vnd.docker.distribution.manifest.v2+json", "application/vnd.oci.image.manifest.v1+json")
LISTS = ("application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.oci.image.index.v1+json")
NOT_FOUND = ("ImageNotFound", "ImageNotFoundException", "RepositoryNotFoundException")


def image_at(aws: Aws, place: re.Match[str], image_id: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    """ECR's answer for the image at `place`, or for `image_id` in its repository; empty if there is none.

    By BatchGetImage: registries of other accounts, such as AWS's own, allow pulling but not DescribeImages.
    """
    named = {"imageDigest": place["digest"]} if place["digest"] else {"imageTag": place["tag"] or "latest"}
    query = {
        "registryId": place["account"],
        "repositoryName": place["name"],
        "imageIds": [image_id or named],
        "acceptedMediaTypes": [*MANIFESTS, *LISTS],
    }
    images = aws.call("ecr", "BatchGetImage", query)["images"]
    return images[0] if images else {}


def by_digest(aws: Aws, uri: str, remedy: str) -> str:
    """Replace the tag in `uri` by its current digest; leave a `uri` as it is that has one or is not in ECR.

    remedy: for a missing image.  Raises AwsError, in that case with a code of NOT_FOUND.
    """
    place = PLACE.fullmatch(uri)
    if place is None or place["digest"] or place["region"] != aws.region:
        return uri
    try:
        image = image_at(aws, place)
    except AwsError as error:
        if error.aws_code not in NOT_FOUND:
            raise
        image = {}
    if not image:
        where = f"the registry of {place['account']} in {place['region']}"
        raise AwsError(f"{where} has no image {place['name']}:{place['tag'] or 'latest'}; {remedy}", NOT_FOUND[0])
    return f"{uri.partition('/')[0]}/{place['name']}@{image['imageId']['imageDigest']}"


Found = TypeVar("Found")

# The region of a dry run without AWS configuration; the catalog's prices are this region's.
SOME_REGION = "us-east-1"

SET_UP = "python -m launch.infra up"

# How many earlier jobs of a script are listed, and how many of them are read, which takes a few requests each.
MOST_LOOKED_AT, MOST_READ = 12, 3
# The toolkit's own files in a script's run folder.
TOOLKIT_FILES = {METRICS, OUTCOME, PACE}
MANIFEST_BYTES = 2**28  # the largest manifest of a prepared data set that is read


class Lookups:
    """Runs look-ups and collects their failures."""

    def __init__(self) -> None:
        self.problems: list[TrainerError] = []
        self.unknown: list[str] = []

    def required(self, ask: Callable[[], Found], otherwise: Found) -> Found:
        """Call ask(); a failure becomes a problem of the plan."""
        try:
            return ask()
        except TrainerError as problem:
            if str(problem) not in map(str, self.problems):  # several look-ups can fail for one reason
                self.problems.append(problem)
            return otherwise

    def optional(self, what: str, ask: Callable[[], Found], otherwise: Found) -> Found:
        """Call ask(); a failure becomes a warning."""
        try:
            return ask()
        except TrainerError as problem:
            self.unknown.append(f"{what} could not be looked up: {problem}")
            return otherwise


def region_or_some(aws: Aws) -> str:
    """The region of `aws`, or SOME_REGION if none is configured."""
    try:
        return aws.region
    except NotSetUp:
        return SOME_REGION


def check_bucket(aws: Aws, bucket: str, account: str) -> None:
    """Raise AwsError if the bucket cannot hold job folders.

    It must belong to the account: a job trusts its folder, and other accounts can create buckets of predictable names.
    """
    try:
        answer = aws.call("s3", "HeadBucket", {"Bucket": bucket, "ExpectedBucketOwner": account})
    except AwsError as error:
        if error.aws_code in ("404", "NoSuchBucket"):
            make = f"{SET_UP if bucket.startswith(TOOLKIT) else f'aws s3 mb s3://{bucket}'} --region {aws.region}"
            words = f"there is no bucket {bucket}; create it ({make}), or choose another with --bucket."
            raise AwsError(words, "NoSuchBucket") from error
        if error.aws_code in ("301", "PermanentRedirect"):
            raise AwsError(_in_another_region(bucket, "another region", aws.region)) from error
        if error.aws_code == "403":
            raise AwsError(
                f"bucket {bucket} belongs to another account, or these credentials may not read it; choose one of "
                f"{account} with --bucket, or ask for the policy in {granted_by('s3:ListBucket')}."
            ) from error
        raise
    region = answer.get("BucketRegion", aws.region)
    if region != aws.region:
        raise AwsError(_in_another_region(bucket, region, aws.region))


def _in_another_region(bucket: str, region: str, here: str) -> str:
    return f"bucket {bucket} is in {region} and the job would run in {here}; choose a bucket in {here} with --bucket."


def describe_role(aws: Aws, name: str, option: str) -> Mapping[str, Any]:
    """The role, with its tags.  option: the flag that chooses another.

    https://docs.aws.amazon.com/IAM/latest/APIReference/API_GetRole.html
    """
    with _missing(f"role {name}", option):
        role: Mapping[str, Any] = aws.call("iam", "GetRole", {"RoleName": name})["Role"]
    return role


def describe_profile(aws: Aws, name: str, option: str) -> Mapping[str, Any]:
    """The instance profile, with its roles.  option: the flag that chooses another."""
    with _missing(f"instance profile {name}", option):
        answer = aws.call("iam", "GetInstanceProfile", {"InstanceProfileName": name})
    profile: Mapping[str, Any] = answer["InstanceProfile"]
    return profile


@contextmanager
def _missing(what: str, option: str) -> Iterator[None]:
    """Add a remedy to an AwsError that means that `what` does not exist."""
    try:
        yield
    except AwsError as error:
        if error.aws_code != "NoSuchEntity":
            raise
        sentence = f"the account has no {what}; create it with {SET_UP}, or choose another with {option}."
        raise AwsError(sentence) from error


def older_stack(role: Mapping[str, Any]) -> tuple[str, int]:
    """The region and version of the stack that made the role of time limits, if the stack is outdated.

    Otherwise "" and the current version, also for a role that was made by hand.
    """
    tags = tag_values(role)
    tagged = tags.get(ROLES_TAG, "1")
    version = int(tagged) if tagged.isdecimal() else 1
    region = re.fullmatch(r"[a-z0-9-]+", tags.get(STACK_TAG, ""))
    return (region[0], version) if region and version < ROLES_VERSION else ("", ROLES_VERSION)


def unreadable(who: str, region: str, what: str = "read the script's source") -> AwsError:
    """The error for machines that could not read the source of their script.  region: of the outdated stack."""
    return AwsError(
        f"{who} may not {what}: the account's stack in {region} is older than this version; update "
        f"it with {SET_UP} --region {region}."
    )


def spec_of(aws: Aws, folder: Folder, backend: str) -> dict[str, Any] | None:
    """The job.json of `folder`, or None if there is no such job.  Raises SettingsError if it is another backend's."""
    return spec_version(aws, folder, backend)[0]


def spec_version(aws: Aws, folder: Folder, backend: str) -> tuple[dict[str, Any] | None, str]:
    """What spec_of() returns, and the ETag for replacing this version only."""
    text, etag = aws.read_version(folder.bucket, folder.spec)
    spec = None if text is None else _json(text, folder.bucket, folder.spec)
    owner = (spec or {}).get("backend", backend)
    if owner != backend:
        raise SettingsError(
            f"{folder.job} is a job of launch.{owner}; see python -m launch.{owner} status {folder.job}, or choose "
            "another --job-name."
        )
    return spec, etag


def content_at(aws: Aws, place: str | None) -> Content | None:
    """Read the manifest of a prepared data set in S3; None if there is none, or it cannot be read.

    Only the forecast depends on it.
    """
    where = parse_s3(place) if place else None
    if where is None or not where.key.strip("/"):
        return None
    try:
        manifest = read_json(aws, where.bucket, f"{where.key.strip('/')}/{MANIFEST}", MANIFEST_BYTES)
        return content_in(manifest) if manifest else None
    except (TrainerError, AttributeError, KeyError, TypeError, ValueError):
        return None


def is_sent(aws: Aws, bucket: str, train: Training, started: datetime) -> bool:
    """Whether S3 has the source of a job that begins then, by S3's own SHA-256.

    If in doubt the source is uploaded, and S3 keeps the object that it has.  That includes any storage class but S3
    Standard, for which HeadObject returns none: nodes cannot read an archived object, so the launch has to fail before
    anything is billed.
    https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadObject.html, x-amz-checksum-mode and x-amz-storage-class
    """
    if train.source is None:
        return False
    asked = {"Bucket": bucket, "Key": key_of(train.digest, started), "ChecksumMode": "ENABLED"}
    try:
        head = aws.call("s3", "HeadObject", asked)
    except TrainerError:
        return False
    is_readable = head.get("StorageClass", "STANDARD") == "STANDARD"
    return bool(is_readable and head.get("ChecksumSHA256") == checksum(train.digest))


def read_json(aws: Aws, bucket: str, key: str, most: int = SMALL_BYTES) -> dict[str, Any] | None:
    """Read a JSON object in S3 of at most that many bytes; None if it does not exist.  Raises AwsError."""
    text = aws.read(bucket, key, most)
    return None if text is None else _json(text, bucket, key)


def _json(text: bytes, bucket: str, key: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise AwsError(f"s3://{bucket}/{key} is damaged: {error}; delete it.") from error
    if not isinstance(content, dict):
        raise AwsError(f"s3://{bucket}/{key} is damaged: it is not a JSON object; delete it.")
    return content


def earlier_jobs(aws: Aws, bucket: str, train: Training, job: str) -> tuple[Earlier, ...]:
    """Earlier jobs in `bucket` that ran the same script, the newest first, without `job` itself.

    Only those that ended, or whose whole time can be estimated.  Only default job names are considered, as they contain
    the time.  Failures are not raised, as only a plan's notes on a script's time and restarts depend on it.
    """
    if not train.digest:
        return ()
    query = {"Bucket": bucket, "Prefix": f"jobs/{stem_of(train.label)}-", "Delimiter": "/"}
    try:
        rows = aws.pages("s3", "ListObjectsV2", "CommonPrefixes", query)
    except TrainerError:
        return ()
    others = {row["Prefix"].split("/")[1] for row in rows} - {job}
    newest = are_default(others, train.label)[:MOST_LOOKED_AT]
    jobs = (_earlier_job(aws, Folder(bucket, name)) for name in newest)
    same = (one for one in jobs if one is not None and is_same_script(one.setting, train))
    return tuple(islice(same, MOST_READ))


def _earlier_job(aws: Aws, folder: Folder) -> Earlier | None:
    """A job without restarts; None for any other, without a known time, or unreadable."""
    try:
        seconds, done = _took(aws, folder)
        setting = _setting(aws, folder) if seconds else None
        return Earlier(folder.job, setting, seconds, _kept(aws, folder), done) if setting else None
    except TrainerError:
        return None


def _took(aws: Aws, folder: Folder) -> tuple[float, float]:
    """earlier.took() of the job in `folder`.  Raises AwsError."""
    outcome = parse(aws.read(folder.bucket, folder.outcome) or b"")
    if outcome is None or outcome.state == "done":
        return took(outcome, None)
    return took(outcome, parse_pace(aws.read(folder.bucket, folder.run + PACE)))


def _setting(aws: Aws, folder: Folder) -> Setting | None:
    """The setting of a job whose script was started only once; None for any other.  Raises AwsError."""
    spec = read_json(aws, folder.bucket, folder.spec) or {}
    members = read_json(aws, folder.bucket, folder.cluster) or {}
    starts = (spec.get("starts", 1), members.get("generation", 1))
    return setting_in(spec) if starts == (1, 1) and not _was_restarted(aws, folder) else None


def _was_restarted(aws: Aws, folder: Folder) -> bool:
    """Whether its script was restarted on its nodes, by the record of one of them.  Raises AwsError."""
    query = {"Bucket": folder.bucket, "Prefix": folder.exits, "MaxKeys": 1}
    rows = aws.call("s3", "ListObjectsV2", query).get("Contents", ())
    records = (read_json(aws, folder.bucket, str(row["Key"])) or {} for row in rows)
    return any(record.get("restarts") not in (None, 0) for record in records)


def _kept(aws: Aws, folder: Folder) -> tuple[str, ...]:
    """The names of the files that a script wrote into its run folder.  Raises AwsError."""
    query = {"Bucket": folder.bucket, "Prefix": folder.run, "MaxKeys": 50}
    listed = aws.call("s3", "ListObjectsV2", query).get("Contents", ())
    names = (str(row["Key"]).removeprefix(folder.run) for row in listed)
    # The toolkit's own .in-use begins with a dot.
    return tuple(name for name in names if name and name not in TOOLKIT_FILES and not name.startswith("."))
