"""Contents of bucket, repository and logs: `down` must not delete them."""

from dataclasses import dataclass
from functools import partial

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.infra.facts import Stack
from launch.infra.lookup import unless_absent

# Counting stops here; the exact size of a bucket with more objects does not matter.
MAX_PAGES = 100


@dataclass(frozen=True)
class Amount:
    """Number and total bytes of objects or images.  at_least: counting stopped early."""

    count: int
    size: int
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'at least ' if self.at_least else ''}{self.count:,} ({self.size / 1e9:,.2f} GB)"


def in_bucket(aws: Aws, bucket: str) -> Amount:
    """All object versions and delete markers: all must go before the bucket can."""
    count = size = 0
    query: dict[str, str] = {"Bucket": bucket}
    for _ in range(MAX_PAGES):
        page = aws.call("s3", "ListObjectVersions", query)
        versions = page.get("Versions", [])
        count += len(versions) + len(page.get("DeleteMarkers", []))
        size += sum(version.get("Size", 0) for version in versions)
        if not page.get("IsTruncated"):
            return Amount(count, size)
        query |= {"KeyMarker": page["NextKeyMarker"], "VersionIdMarker": page.get("NextVersionIdMarker", "")}
    return Amount(count, size, at_least=True)


def in_repository(aws: Aws, repository: str) -> Amount:
    """All images."""
    images = aws.pages("ecr", "DescribeImages", "imageDetails", {"repositoryName": repository})
    return Amount(len(images), sum(image.get("imageSizeInBytes") or 0 for image in images))


def has_logs(aws: Aws, group: str) -> bool:
    """Whether the log group has any stream."""
    query = {"logGroupName": group, "limit": 1}
    answer = unless_absent(partial(aws.call, "logs", "DescribeLogStreams", query))
    return bool(answer and answer["logStreams"])


def check_no_data(aws: Aws, stack: Stack) -> None:
    """Raises AwsError with the commands that empty bucket and repository, unless they are empty or gone."""
    paragraphs = list[str]()
    bucket, repository = stack.resources.get("JobBucket"), stack.resources.get("Repository")
    objects = unless_absent(partial(in_bucket, aws, bucket)) if bucket else None
    if objects and objects.count:
        # `aws s3 rm` cannot delete old versions.  Python and boto3 are installed wherever this runs.
        empty = f"""python -c 'import boto3; boto3.resource("s3").Bucket("{bucket}").object_versions.delete()'"""
        paragraphs.append(f"bucket {bucket} holds objects and old versions: {objects}\n  {empty}")
    images = unless_absent(partial(in_repository, aws, repository)) if repository else None
    if images and images.count:
        delete = f"aws ecr delete-repository --force --repository-name {repository} --region {aws.region}"
        paragraphs.append(f"repository {repository} holds images: {images}\n  {delete}")
    if paragraphs:
        raise AwsError(
            "the stack holds data:\n" + "\n".join(paragraphs) + "\nDelete it with these commands, which need "
            "s3:DeleteObject, s3:DeleteObjectVersion and ecr:BatchDeleteImage: infra/iam/administrator.json grants "
            "none of them. Or keep it: python -m launch.infra down --keep-data",
            "HoldsData",
        )
