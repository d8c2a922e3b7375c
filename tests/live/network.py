"""What a case makes in AWS for itself and removes again: a network without a way out; and what `down` keeps."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from launch.aws.client import Aws
from launch.aws.names import TOOLKIT
from launch.core.errors import AwsError
from launch.ec2.backend import LOG_GROUP


@contextmanager
def without_way_out(aws: Aws, name: str) -> Iterator[str]:
    """A subnet of a VPC that has no gateway; both are removed again."""
    tagged = [{"Key": "Name", "Value": name}]
    vpc = aws.call("ec2", "CreateVpc", {
        "CidrBlock": "10.99.0.0/24", "TagSpecifications": [{"ResourceType": "vpc", "Tags": tagged}],
    })["Vpc"]["VpcId"]  # fmt: skip
    try:
        zones = aws.call("ec2", "DescribeInstanceTypeOfferings", {
            "LocationType": "availability-zone", "Filters": [{"Name": "instance-type", "Values": ["c7i.large"]}],
        })["InstanceTypeOfferings"]  # fmt: skip
        zone = min(row["Location"] for row in zones)
        subnet = aws.call("ec2", "CreateSubnet", {
            "VpcId": vpc, "CidrBlock": "10.99.0.0/26", "AvailabilityZone": zone,
            "TagSpecifications": [{"ResourceType": "subnet", "Tags": tagged}],
        })["Subnet"]["SubnetId"]  # fmt: skip
        try:
            yield subnet
        finally:
            aws.call("ec2", "DeleteSubnet", {"SubnetId": subnet})
    finally:
        aws.call("ec2", "DeleteVpc", {"VpcId": vpc})


def remove_kept(aws: Aws, account: str, bucket: str, names: Collection[str]) -> None:
    """Removes data that `launch.infra down --keep-data` keeps.  names: which of KEPT this run has made."""
    if "JobBucket" in names:
        with suppress(AwsError):
            _remove_bucket(aws, {"Bucket": bucket, "ExpectedBucketOwner": account})
    if "Repository" in names:
        with suppress(AwsError):
            aws.call("ecr", "DeleteRepository", {"repositoryName": TOOLKIT, "force": True})
    if "NodeLogs" in names:
        with suppress(AwsError):
            aws.call("logs", "DeleteLogGroup", {"logGroupName": LOG_GROUP})


def _remove_bucket(aws: Aws, owner: dict[str, str]) -> None:
    for kind in ("Versions", "DeleteMarkers"):
        rows = aws.pages("s3", "ListObjectVersions", kind, owner)
        for start in range(0, len(rows), 1000):
            objects = [{"Key": row["Key"], "VersionId": row["VersionId"]} for row in rows[start : start + 1000]]
            aws.call("s3", "DeleteObjects", {**owner, "Delete": {"Objects": objects, "Quiet": True}})
    aws.call("s3", "DeleteBucket", owner)
