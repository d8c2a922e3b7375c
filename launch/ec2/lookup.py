"""The look-ups before a launch, one function each.  Reads only."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from launch.core import network
from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.instance import quotas
from launch.core.instance.quotas import Quota, quota_of
from launch.core.instance.subnets import Subnet
from launch.core.lookup import missing, older_stack
from launch.core.names import DATA_TAG, tag_values
from launch.core.published import content_of
from launch.ec2.facts import Ami, Reservation, Snapshot
from launch.ec2.names import LOG_GROUP
from launch.ec2.resolved import Resolved

# In order; Ubuntu 22.04 is supported until 2027.
AMI_PARAMETERS = tuple(
    f"/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-{version}/latest/ami-id"
    for version in ("22.04", "24.04")
)


def offered_zones(aws: Aws, types: list[str]) -> dict[str, frozenset[str]]:
    """The zones that offer each type."""
    rows = aws.pages(
        "ec2",
        "DescribeInstanceTypeOfferings",
        "InstanceTypeOfferings",
        {"LocationType": "availability-zone", "Filters": [{"Name": "instance-type", "Values": types}]},
    )
    return {name: frozenset(r["Location"] for r in rows if r["InstanceType"] == name) for name in types}


def find_exits(aws: Aws, subnets: Sequence[Subnet]) -> dict[str, network.Exit]:
    """How nodes leave the subnets, which are of one VPC."""
    return network.look_up(aws, subnets[0].vpc, [subnet.id for subnet in subnets]) if subnets else {}


def find_ami(aws: Aws, wanted: str | None) -> Ami:
    """The AMI `wanted`, or AWS's newest one for GPUs, with its root device."""
    name = wanted or _newest_ami(aws)
    images = aws.call("ec2", "DescribeImages", {"ImageIds": [name]})["Images"]
    if not images:
        raise AwsError(f"AMI {name} does not exist in {aws.region}; give another with --ami, or omit it.")
    root, gib = images[0].get("RootDeviceName", "/dev/sda1"), 0
    for mapping in images[0].get("BlockDeviceMappings", ()):
        if mapping.get("DeviceName") == root:
            gib = mapping.get("Ebs", {}).get("VolumeSize", 0)
    return Ami(name, root, gib)


def _newest_ami(aws: Aws) -> str:
    """AWS's own for GPUs; the next Ubuntu's where a region has none of this one any more."""
    first, *others = AMI_PARAMETERS
    for parameter in others:
        try:
            return _parameter(aws, first)
        except AwsError as error:
            if error.aws_code != "ParameterNotFound":
                raise
            first = parameter
    return _parameter(aws, first)


def _parameter(aws: Aws, name: str) -> str:
    return str(aws.call("ssm", "GetParameter", {"Name": name})["Parameter"]["Value"])


def find_image(aws: Aws, wanted: str, account: str, region: str) -> str:
    """The image's URI with its digest, so that every node and every restart runs the same code."""
    host, slash, _ = wanted.partition("/")
    if slash and ("." in host or ":" in host):
        return wanted  # a full URI, perhaps in another registry
    repository, at, digest = wanted.partition("@")
    repository, _, tag = repository.partition(":")
    image_id = {"imageDigest": digest} if at else {"imageTag": tag or "latest"}
    query = {"repositoryName": repository, "imageIds": [image_id]}
    details = aws.call("ecr", "DescribeImages", query)["imageDetails"]
    if not details:
        raise AwsError(f"ECR has no image {wanted}; push it (python -m launch.image push), or give another --image.")
    return f"{account}.dkr.ecr.{region}.amazonaws.com/{repository}@{details[0]['imageDigest']}"


def find_snapshot(aws: Aws, resolved: Resolved, earlier: str | None, dataset: str) -> Snapshot | None:
    """The snapshot given, else that of an earlier start, else the account's newest one tagged with the data set."""
    if resolved.data_volume == "none":
        return None
    snapshot, name = resolved.options.data_snapshot or earlier, resolved.options.data or dataset
    query: dict[str, Any] = {"SnapshotIds": [snapshot]}
    if snapshot is None:
        query = {"OwnerIds": ["self"], "Filters": [{"Name": f"tag:{DATA_TAG}", "Values": [name]}]}
    rows = aws.pages("ec2", "DescribeSnapshots", "Snapshots", query)
    if not rows:
        raise AwsError(
            f"no snapshot in {aws.region} is tagged {DATA_TAG}={name}; publish the data (python -m launch.data publish "
            f"FOLDER --name {name}), or give a snapshot with --data-snapshot, or a folder in S3 with --data-s3."
        )
    newest = max(rows, key=lambda row: (row["State"] == "completed", row["StartTime"]))
    if newest["State"] == "error":  # as one that launch.data has begun, and that got no block for a day
        raise AwsError(f"AWS could not complete {newest['SnapshotId']}; publish the data again, which replaces it.")
    if newest["State"] != "completed":
        raise AwsError(f"snapshot {newest['SnapshotId']} is {newest['State']}; wait until it is completed.")
    content = content_of(tag_values(newest))
    return Snapshot(newest["SnapshotId"], newest["VolumeSize"], newest.get("FullSnapshotSizeInBytes", 0), content)


def find_quotas(aws: Aws, resolved: Resolved) -> dict[str, Quota]:
    """The vCPU quotas of the types, with what is in use."""
    families = {quota_of(instance, resolved.options.spot) for instance in resolved.instances}
    return quotas.find_quotas(aws, families)


def spot_prices(aws: Aws, resolved: Resolved, now: datetime) -> dict[str, float]:
    """The current price of each type in its most expensive zone; empty for other markets."""
    if not resolved.options.spot:
        return {}
    rows = aws.pages(
        "ec2",
        "DescribeSpotPriceHistory",
        "SpotPriceHistory",
        {
            "InstanceTypes": [instance.name for instance in resolved.instances],
            "ProductDescriptions": ["Linux/UNIX"],
            "StartTime": now,  # without it, AWS returns all prices of the last 90 days
        },
    )
    newest = {(row["InstanceType"], row["AvailabilityZone"]): row for row in sorted(rows, key=lambda r: r["Timestamp"])}
    prices: dict[str, float] = {}
    for (name, _), row in newest.items():
        prices[name] = max(prices.get(name, 0.0), float(row["SpotPrice"]))
    return prices


def find_reservation(aws: Aws, wanted: str | None) -> Reservation | None:
    if wanted is None:
        return None
    query = {"CapacityReservationIds": [wanted]}
    rows = aws.call("ec2", "DescribeCapacityReservations", query)["CapacityReservations"]
    if not rows:
        raise AwsError(f"there is no reservation {wanted} in {aws.region}; give one of this region, or leave it out.")
    row = rows[0]
    if row["State"] != "active":
        raise AwsError(f"reservation {wanted} is {row['State']}; start the job once it is active.")
    # Another reservation's instances go on as ordinary ones; those of a block are ended.
    ends = row.get("EndDate") if row.get("ReservationType") == "capacity-block" else None
    return Reservation(wanted, row["AvailabilityZone"], row["InstanceType"], row["AvailableInstanceCount"], ends)


def find_role(aws: Aws, name: str) -> tuple[str | None, str, int]:
    """The ARN of a role for time limits; and the region and version of the stack that made it, if that is older.

    https://docs.aws.amazon.com/IAM/latest/APIReference/API_GetRole.html answers with the role's tags, too.
    """
    try:
        role = aws.call("iam", "GetRole", {"RoleName": name})["Role"]
    except AwsError as error:
        raise missing(error, f"role {name}", "--scheduler-role") from error
    return (str(role["Arn"]), *older_stack(role))


def check_profile(aws: Aws, name: str) -> None:
    try:
        aws.call("iam", "GetInstanceProfile", {"InstanceProfileName": name})
    except AwsError as error:
        raise missing(error, f"instance profile {name}", "--instance-profile") from error


def log_group_exists(aws: Aws) -> bool:
    groups = aws.call("logs", "DescribeLogGroups", {"logGroupNamePrefix": LOG_GROUP})["logGroups"]
    return any(group["logGroupName"] == LOG_GROUP for group in groups)
