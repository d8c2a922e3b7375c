"""What bucket, repository and logs hold: data that speak against taking the account down."""

from collections.abc import Callable
from dataclasses import dataclass

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.infra.facts import Stack

# So many are counted; nobody needs to know by how many a bucket with a million objects is not empty.
ENOUGH_PAGES = 100

ABSENT = {"404", "NoSuchBucket", "RepositoryNotFoundException", "ResourceNotFoundException"}


@dataclass(frozen=True)
class ChildProcess:
    """So much is in something.  at_least: not all was counted."""

    count: int
    size: int
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'at least ' if self.at_least else ''}{self.count:,} ({self.size / 1e9:,.2f} GB)"


def in_bucket(aws: Aws, bucket: str) -> ChildProcess:
    """Objects with their old versions, and what marks deleted ones: all of it must go before the bucket can."""
    count = size = 0
    where: dict[str, str] = {"Bucket": bucket}
    for _ in range(ENOUGH_PAGES):
        page = aws.call("s3", "ListObjectVersions", where)
        versions = page.get("Versions", [])
        count += len(versions) + len(page.get("DeleteMarkers", []))
        size += sum(version.get("Size", 0) for version in versions)
        if not page.get("IsTruncated"):
            return ChildProcess(count, size)
        where |= {"KeyMarker": page["NextKeyMarker"], "VersionIdMarker": page.get("NextVersionIdMarker", "")}
    return ChildProcess(count, size, at_least=True)


def in_repository(aws: Aws, repository: str) -> ChildProcess:
    """Its images."""
    images = aws.pages("ecr", "DescribeImages", "imageDetails", {"repositoryName": repository})
    return ChildProcess(len(images), sum(image.get("imageSizeInBytes") or 0 for image in images))


def has_logs(aws: Aws, group: str) -> bool:
    """Whether anybody ever wrote there."""
    try:
        return bool(aws.call("logs", "DescribeLogStreams", {"logGroupName": group, "limit": 1})["logStreams"])
    except AwsError as error:
        if error.aws_code in ABSENT:
            return False
        raise


def check_no_data(aws: Aws, stack: Stack) -> None:
    """Raises AwsError with the commands that empty them, if bucket or repository of the stack hold something."""
    found = []
    bucket, repository = stack.resources.get("JobBucket"), stack.resources.get("Repository")
    objects = _unless_gone(lambda: in_bucket(aws, bucket)) if bucket else None
    if objects and objects.count:
        found.append(f"bucket {bucket} holds objects and old versions: {objects}\n{_empty_bucket(bucket)}")
    images = _unless_gone(lambda: in_repository(aws, repository)) if repository else None
    if images and images.count:
        delete = f"aws ecr delete-repository --force --repository-name {repository} --region {aws.region}"
        found.append(f"repository {repository} holds images: {images}\n  {delete}")
    if found:
        raise AwsError(
            "there are data:\n" + "\n".join(found) + "\nEmpty them with these commands, which take rights of your own "
            "(s3:DeleteObject, s3:DeleteObjectVersion; ecr:BatchDeleteImage): infra/iam/administrator.json deletes no "
            "data. Or leave them: python -m launch.infra down --keep-data",
            "HoldsData",
        )


def _empty_bucket(bucket: str | None) -> str:
    """Old versions are beyond `aws s3 rm`; Python is there, and so is boto3."""
    return f"""  python -c 'import boto3; boto3.resource("s3").Bucket("{bucket}").object_versions.delete()'"""


def _unless_gone(count: Callable[[], ChildProcess]) -> ChildProcess | None:
    try:
        return count()
    except AwsError as error:
        if error.aws_code in ABSENT:
            return None
        raise
