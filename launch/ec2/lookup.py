"""What must be asked of AWS before a launch.  Reads only; each question is one function."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.lookup import Lookups, check_bucket, missing, read_json, region_or_some, spec_of
from launch.core.names import DATA_TAG, Folder, bucket_of
from launch.ec2.checks import Resolved
from launch.ec2.facts import Ami, Facts, Quota, Reservation, Snapshot, Subnet
from launch.ec2.fleet import Fleet, find, node
from launch.ec2.names import BACKEND, LOG_GROUP
from launch.ec2.quotas import quota_of
from trainer.errors import SettingsError, TrainerError

AMI_PARAMETER = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"


def look_up(aws: Aws, resolved: Resolved, job: str, dataset: str, now: datetime) -> Facts:
    """All facts for the planner.  Raises nothing of AWS's: what failed is among the problems."""
    try:
        region, account = aws.region, str(aws.call("sts", "GetCallerIdentity")["Account"])
    except TrainerError as problem:
        unknown = "without an answer from AWS, nothing was looked up: account, zones, AMI, image, snapshot, quotas"
        return Facts(region_or_some(aws), now=now, problems=(problem,), unknown=(unknown,))
    options, lookups = resolved.options, Lookups()
    folder = Folder(options.bucket or bucket_of(account, region), job)
    required, optional = lookups.required, lookups.optional
    types = [instance.name for instance in resolved.instances]
    required(lambda: check_bucket(aws, folder.bucket, account), None)
    spec = None if lookups.problems else required(lambda: spec_of(aws, folder, BACKEND), None)
    # A start that has not ended goes on with what it began with.
    begun: Mapping[str, Any] = spec if spec is not None and "ended" not in spec else {}
    offered: dict[str, frozenset[str]] = {}
    offered = optional("the types' zones", lambda: _offered(aws, types), offered)
    facts = Facts(
        region=region,
        account=account,
        offered=offered,
        subnets=required(lambda: _subnets(aws, options.subnet, options.zones), ()),
        ami=required(lambda: _ami(aws, options.ami or begun.get("ami")), None),
        image=begun.get("image") or required(lambda: _image(aws, options.image, account, region), None),
        snapshot=required(lambda: _snapshot(aws, options.data_snapshot or begun.get("snapshot"), dataset), None)
        if resolved.data_volume != "none"
        else None,
        quotas=optional("vCPU quotas", lambda: _quotas(aws, resolved), {}),
        spot_usd_per_hour=optional("spot prices", lambda: _spot_prices(aws, types, now), {}) if options.spot else {},
        reservation=required(lambda: _reservation(aws, options.capacity_reservation or options.capacity_block), None),
        scheduler_role=required(lambda: _role(aws, options.scheduler_role), None),
        fleet=required(lambda: find(aws, job), Fleet()),
        spec=spec,
        last_generation=required(lambda: _last_generation(aws, folder), 0),
        now=now,
    )
    required(lambda: _check_profile(aws, options.instance_profile), None)
    has_logs = optional("the log group", lambda: _has_log_group(aws), True)
    return _with(facts, lookups, has_logs)


def _with(facts: Facts, lookups: Lookups, has_logs: bool) -> Facts:
    problems = {str(problem): problem for problem in lookups.problems}
    return replace(facts, has_log_group=has_logs, problems=tuple(problems.values()), unknown=tuple(lookups.unknown))


def _offered(aws: Aws, types: list[str]) -> dict[str, frozenset[str]]:
    """The zones that have each type."""
    rows = aws.pages(
        "ec2",
        "DescribeInstanceTypeOfferings",
        "InstanceTypeOfferings",
        {"LocationType": "availability-zone", "Filters": [{"Name": "instance-type", "Values": types}]},
    )
    return {name: frozenset(r["Location"] for r in rows if r["InstanceType"] == name) for name in types}


def _subnets(aws: Aws, wanted: tuple[str, ...], zones: tuple[str, ...]) -> tuple[Subnet, ...]:
    """The subnets given, or the default VPC's; in the order of `zones`, if given, and only those."""
    query: dict[str, Any] = {"SubnetIds": list(wanted)} if wanted else {
        "Filters": [{"Name": "default-for-az", "Values": ["true"]}]
    }  # fmt: skip
    rows = aws.pages("ec2", "DescribeSubnets", "Subnets", query)
    found = sorted((Subnet(r["SubnetId"], r["AvailabilityZone"], r["VpcId"]) for r in rows), key=lambda s: s.zone)
    if not found:
        raise SettingsError(f"{aws.region} has no default VPC; give your own subnets with --subnet subnet-...")
    if len({subnet.vpc for subnet in found}) > 1:
        raise SettingsError("the subnets of --subnet are in different VPCs; give those of one.")
    there = [subnet.zone for subnet in found]
    for zone in zones:
        if zone not in there:
            raise SettingsError(f"--zones {zone}: there is a subnet only in {', '.join(there)}; take one of these.")
    return tuple(sorted((s for s in found if s.zone in zones), key=lambda s: zones.index(s.zone)) if zones else found)


def _ami(aws: Aws, wanted: str | None) -> Ami:
    """The AMI given, or AWS's newest one for GPUs; with the name of its system disk."""
    name = wanted or aws.call("ssm", "GetParameter", {"Name": AMI_PARAMETER})["Parameter"]["Value"]
    images = aws.call("ec2", "DescribeImages", {"ImageIds": [name]})["Images"]
    if not images:
        raise AwsError(f"AMI {name} is not in {aws.region}; give another with --ami, or leave it out.")
    root = images[0].get("RootDeviceName", "/dev/sda1")
    disks = [m.get("Ebs", {}) for m in images[0].get("BlockDeviceMappings", ()) if m.get("DeviceName") == root]
    return Ami(name, root, max((disk.get("VolumeSize", 0) for disk in disks), default=0))


def _image(aws: Aws, wanted: str, account: str, region: str) -> str:
    """The image with its digest, so that every node and every restart runs the same code."""
    host, slash, _ = wanted.partition("/")
    if slash and ("." in host or ":" in host):
        return wanted  # a full URI, perhaps of somebody else's registry
    repository, at, digest = wanted.partition("@")
    repository, _, tag = repository.partition(":")
    named = {"imageDigest": digest} if at else {"imageTag": tag or "latest"}
    asked = {"repositoryName": repository, "imageIds": [named]}
    details = aws.call("ecr", "DescribeImages", asked)["imageDetails"]
    return f"{account}.dkr.ecr.{region}.amazonaws.com/{repository}@{details[0]['imageDigest']}"


def _snapshot(aws: Aws, wanted: str | None, dataset: str) -> Snapshot:
    """The snapshot given, or the newest completed one of the account's that is tagged with the data set."""
    tagged = {"OwnerIds": ["self"], "Filters": [{"Name": f"tag:{DATA_TAG}", "Values": [dataset]}]}
    rows = aws.pages("ec2", "DescribeSnapshots", "Snapshots", {"SnapshotIds": [wanted]} if wanted else tagged)
    if not rows:
        raise AwsError(
            f"no snapshot in {aws.region} is tagged {DATA_TAG}={dataset}; give one with --data-snapshot, "
            "or the data with --data-s3 (infra/README.md says how to make a snapshot)."
        )
    newest = max(rows, key=lambda row: (row["State"] == "completed", row["StartTime"]))
    if newest["State"] != "completed":
        raise AwsError(f"snapshot {newest['SnapshotId']} is {newest['State']}; wait until it is completed.")
    return Snapshot(newest["SnapshotId"], newest["VolumeSize"])


def _quotas(aws: Aws, resolved: Resolved) -> dict[str, Quota]:
    """The vCPU limits that the types fall under, with what already runs."""
    wanted = {quota_of(instance, resolved.options.spot) for instance in resolved.instances}
    running = {"Filters": [{"Name": "instance-state-name", "Values": ["pending", "running"]}]}
    rows = [i for r in aws.pages("ec2", "DescribeInstances", "Reservations", running) for i in r["Instances"]]
    found = {}
    for family in wanted:
        asked = {"ServiceCode": "ec2", "QuotaCode": family.code}
        limit = aws.call("service-quotas", "GetServiceQuota", asked)["Quota"]["Value"]
        used = [n.vcpus for n in map(node, rows) if family.counts(n.type) and n.spot == family.spot]
        found[family.name] = Quota(family.name, float(limit), sum(used))
    return found


def _spot_prices(aws: Aws, types: list[str], now: datetime) -> dict[str, float]:
    """The dearest zone's price of each type now."""
    rows = aws.pages(
        "ec2",
        "DescribeSpotPriceHistory",
        "SpotPriceHistory",
        # Without a beginning, AWS gives all prices of the last 90 days.
        {"InstanceTypes": types, "ProductDescriptions": ["Linux/UNIX"], "StartTime": now},
    )
    newest = {(row["InstanceType"], row["AvailabilityZone"]): row for row in sorted(rows, key=lambda r: r["Timestamp"])}
    prices: dict[str, float] = {}
    for (name, _), row in newest.items():
        prices[name] = max(prices.get(name, 0.0), float(row["SpotPrice"]))
    return prices


def _reservation(aws: Aws, wanted: str | None) -> Reservation | None:
    if wanted is None:
        return None
    asked = {"CapacityReservationIds": [wanted]}
    (found,) = aws.call("ec2", "DescribeCapacityReservations", asked)["CapacityReservations"]
    if found["State"] != "active":
        raise AwsError(f"reservation {wanted} is {found['State']}; start the job once it is active.")
    return Reservation(wanted, found["AvailabilityZone"], found["InstanceType"], found["AvailableInstanceCount"])


def _role(aws: Aws, name: str) -> str:
    try:
        return str(aws.call("iam", "GetRole", {"RoleName": name})["Role"]["Arn"])
    except AwsError as error:
        raise missing(error, f"role {name}", "--scheduler-role") from error


def _check_profile(aws: Aws, name: str) -> None:
    try:
        aws.call("iam", "GetInstanceProfile", {"InstanceProfileName": name})
    except AwsError as error:
        raise missing(error, f"instance profile {name}", "--instance-profile") from error


def _last_generation(aws: Aws, folder: Folder) -> int:
    return int((read_json(aws, folder.bucket, folder.cluster) or {}).get("generation", 0))


def _has_log_group(aws: Aws) -> bool:
    groups = aws.call("logs", "DescribeLogGroups", {"logGroupNamePrefix": LOG_GROUP})["logGroups"]
    return any(group["logGroupName"] == LOG_GROUP for group in groups)
