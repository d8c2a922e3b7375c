"""The facts that a launch of instances depends on: subnets, zones, AMIs, roles and vCPU quotas.  Reads only."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launch.aws import network
from launch.aws.client import Aws
from launch.aws.refusals import quota_increase
from launch.core.catalog import Instance, Rate, load
from launch.core.errors import AwsError
from trainer.errors import SettingsError, did_you_mean


@dataclass(frozen=True)
class Subnet:
    """A subnet that nodes can start in: one per zone."""

    id: str
    zone: str
    vpc: str
    gives_addresses: bool = True  # public ones, to instances with one network interface
    zone_id: str = ""  # such as use1-az1, which is the same zone in all accounts


def find_subnets(aws: Aws, ids: tuple[str, ...], zones: tuple[str, ...]) -> tuple[Subnet, ...]:
    """The subnets `ids`, or the default VPC's; if given, only those in `zones` and in that order."""
    query: dict[str, Any] = {"Filters": [{"Name": "default-for-az", "Values": ["true"]}]}
    if ids:
        query = {"SubnetIds": list(ids)}
    rows = aws.pages("ec2", "DescribeSubnets", "Subnets", query)
    subnets = [
        Subnet(
            row["SubnetId"],
            row["AvailabilityZone"],
            row["VpcId"],
            row.get("MapPublicIpOnLaunch", False),
            row.get("AvailabilityZoneId", ""),
        )
        for row in rows
    ]
    subnets.sort(key=lambda subnet: subnet.zone)
    if not subnets:
        raise SettingsError(f"{aws.region} has no default VPC; give your own subnets with --subnet subnet-...")
    if len({subnet.vpc for subnet in subnets}) > 1:
        raise SettingsError("the subnets of --subnet belong to different VPCs; give those of one VPC.")
    return _in_zones(subnets, zones)


def _in_zones(subnets: list[Subnet], zones: tuple[str, ...]) -> tuple[Subnet, ...]:
    """The subnets in `zones`, in that order; all of them if none are given.  Raises SettingsError."""
    if not zones:
        return tuple(subnets)
    known = [subnet.zone for subnet in subnets]
    for zone in zones:
        if zone not in known:
            raise SettingsError(f"--zones {zone}: there are subnets only in {', '.join(known)}; choose one of these.")
    chosen = [subnet for subnet in subnets if subnet.zone in zones]
    return tuple(sorted(chosen, key=lambda subnet: zones.index(subnet.zone)))


def find_exits(aws: Aws, subnets: Sequence[Subnet]) -> dict[str, network.Exit]:
    """How instances reach the internet from each subnet.  subnets: all in one VPC."""
    return network.look_up(aws, subnets[0].vpc, [subnet.id for subnet in subnets]) if subnets else {}


def closed_dns(aws: Aws, groups: Sequence[str], servers: Sequence[str]) -> tuple[str, ...]:
    """The VPC's own DNS servers, if these security groups let no request out to any of them."""
    if not groups or not servers:
        return ()
    rows = aws.pages("ec2", "DescribeSecurityGroups", "SecurityGroups", {"GroupIds": list(groups)})
    return network.closed_to(servers, rows)


def offered_zones(aws: Aws, types: Sequence[str]) -> dict[str, frozenset[str]]:
    """The zones that offer each type."""
    rows = aws.pages(
        "ec2",
        "DescribeInstanceTypeOfferings",
        "InstanceTypeOfferings",
        {"LocationType": "availability-zone", "Filters": [{"Name": "instance-type", "Values": list(types)}]},
    )
    return {name: frozenset(r["Location"] for r in rows if r["InstanceType"] == name) for name in types}


@dataclass(frozen=True)
class Ami:
    id: str
    root_device: str
    gib: int = 0  # the smallest root volume it fits on


def describe_ami(aws: Aws, name: str, instead: str) -> Ami:
    """The AMI called `name`, with its root device.  instead: the remedy if there is none, such as a flag."""
    images = aws.call("ec2", "DescribeImages", {"ImageIds": [name]})["Images"]
    if not images:
        raise AwsError(f"AMI {name} does not exist in {aws.region}; {instead}.")
    root, gib = images[0].get("RootDeviceName", "/dev/sda1"), 0
    for mapping in images[0].get("BlockDeviceMappings", ()):
        if mapping.get("DeviceName") == root:
            gib = mapping.get("Ebs", {}).get("VolumeSize", 0)
    return Ami(name, root, gib)


def ssm_parameter(aws: Aws, name: str) -> str:
    """The value of a parameter in Systems Manager, such as the id of AWS's newest AMI."""
    return str(aws.call("ssm", "GetParameter", {"Name": name})["Parameter"]["Value"])


# EC2's states of an instance that counts against a quota.
COUNTED = ("pending", "running")


@dataclass(frozen=True)
class Quota:
    """The vCPUs of a family of types that the account may run, and those in use."""

    name: str
    limit: float
    running: int
    code: str = ""  # in Service Quotas


@dataclass(frozen=True)
class Family:
    """A quota and the generations of types that share it: p5, or p for any p with a number."""

    code: str
    name: str
    generations: tuple[str, ...]
    spot: bool
    kind: str = ""  # in names

    def counts(self, instance_type: str) -> bool:
        """Whether the type counts against it; trn1 is not of the family t."""
        patterns = [name if name[-1].isdigit() else name + r"\d" for name in self.generations]
        return re.match("|".join(patterns), instance_type) is not None

    def is_of(self, instance_type: str, *, spot: bool) -> bool:
        """Whether a running instance counts against it."""
        return self.counts(instance_type) and spot == self.spot


_STANDARD = ("a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z")
_GRAPHICS = ("g", "gr", "vt")
FAMILIES = (
    Family("L-DB2E81BA", "Running On-Demand G and VT instances", _GRAPHICS, False, "graphics"),
    Family("L-417A185B", "Running On-Demand P instances", ("p",), False, "p"),
    Family("L-1216C47A", "Running On-Demand Standard instances", _STANDARD, False, "standard"),
    Family("L-3819A6DF", "All G and VT Spot Instance Requests", _GRAPHICS, True, "graphics-spot"),
    Family("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", ("p2", "p3", "p4"), True, "p-spot"),
    Family("L-C4BD4855", "All P5 Spot Instance Requests", ("p5",), True, "p5-spot"),
    Family("L-34B43A08", "All Standard Spot Instance Requests", _STANDARD, True, "standard-spot"),
)


def quota_of(instance: Instance, spot: bool) -> Family:
    """The quota that limits how many of `instance` run; one without a code if it is not in the table."""
    families = (family for family in FAMILIES if family.spot == spot and family.counts(instance.name))
    return next(families, Family("", "", (), spot))


def find_quotas(aws: Aws, families: Iterable[Family]) -> dict[str, Quota]:
    """These quotas with their use, by name."""
    running = {"Filters": [{"Name": "instance-state-name", "Values": list(COUNTED)}]}
    reservations = aws.pages("ec2", "DescribeInstances", "Reservations", running)
    nodes = [node for reservation in reservations for node in reservation["Instances"]]
    quotas = {}
    for family in (family for family in families if family.code):
        query = {"ServiceCode": "ec2", "QuotaCode": family.code}
        limit = aws.call("service-quotas", "GetServiceQuota", query)["Quota"]["Value"]
        in_use = sum(_vcpus(node) for node in nodes if family.is_of(node["InstanceType"], spot=_is_spot(node)))
        quotas[family.name] = Quota(family.name, float(limit), in_use, family.code)
    return quotas


def _is_spot(node: Mapping[str, Any]) -> bool:
    return bool(node.get("InstanceLifecycle") == "spot")


def _vcpus(node: Mapping[str, Any]) -> int:
    cpu = node.get("CpuOptions", {})
    return int(cpu.get("CoreCount", 0) * cpu.get("ThreadsPerCore", 0))


def shortage(quota: Quota | None, needed: int, who: str, instead: str, region: str) -> AwsError | None:
    """Why so many vCPUs exceed the quota; None if they do not, or the quota is not known.

    who: needs them, with the verb; instead: the alternative to a higher quota.
    """
    if quota is None or needed <= 0 or needed + quota.running <= quota.limit:
        return None
    more = quota_increase("ec2", quota.code, needed + quota.running, region)
    return AwsError(
        f"{who} {needed} vCPUs, {quota.running} are in use, and the quota '{quota.name}' is {quota.limit:g}; "
        f"{instead}, or ask for more with\n  {more}"
    )


UNKNOWN = ("InvalidInstanceType", "InvalidParameterValue")  # EC2's codes for a type that it does not have


def find_types(aws: Aws, instances: Iterable[Instance]) -> dict[str, Instance]:
    """EC2's description of those that the catalog lacks, by name.  Raises SettingsError for one that cannot be used."""
    found = {}
    for name in dict.fromkeys(instance.name for instance in instances if not instance.is_known):
        try:
            rows = aws.call("ec2", "DescribeInstanceTypes", {"InstanceTypes": [name]})["InstanceTypes"]
        except AwsError as error:
            if error.aws_code not in UNKNOWN:
                raise
            rows = []
        if not rows:
            near = did_you_mean(name, load())
            raise SettingsError(f"EC2 has no instance type {name} in {aws.region}{near or '; check the name.'}")
        found[name] = described(rows[0])
    return found


def described(row: Mapping[str, Any]) -> Instance:
    """The type in an answer of DescribeInstanceTypes, without a price.  Raises SettingsError if it cannot be used."""
    name, gpu = row["InstanceType"], _gpu(row)
    if "x86_64" not in row["ProcessorInfo"]["SupportedArchitectures"]:
        raise SettingsError(f"{name} has an Arm processor, and AMIs and images are for x86_64; take another type.")
    if gpu.get("Manufacturer", "NVIDIA") != "NVIDIA":
        raise SettingsError(f"{name} has GPUs of {gpu['Manufacturer']}, and the trainer needs NVIDIA's; take another.")
    network, ebs = row["NetworkInfo"], row["EbsInfo"].get("EbsOptimizedInfo", {})
    efa = network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)
    return Instance(
        name=name,
        gpus=max(1, gpu["Count"]) if gpu else 0,  # EC2 says 0 for a part of a GPU
        vcpus=row["VCpuInfo"]["DefaultVCpus"],
        memory_gib=row["MemoryInfo"]["SizeInMiB"] / 1024,
        nvme_gb=row.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0),
        efa=efa,
        first_efa_card=int(efa > 1 and len(network.get("NetworkCards", ())) > efa),
        network_gbps=_network(network),
        ebs_mb_per_s=Rate(ebs.get("BaselineThroughputInMBps", 0.0), ebs.get("MaximumThroughputInMBps", 0.0)),
        usd_per_hour=0.0,
        processor=row["ProcessorInfo"].get("Manufacturer", ""),
        clock_ghz=row["ProcessorInfo"].get("SustainedClockSpeedInGhz", 0.0),
        gpu_model=gpu.get("Name"),
        architecture=_architectures().get(gpu.get("Name", "")),
        price_source="list" if "on-demand" in row.get("SupportedUsageClasses", ["on-demand"]) else "capacity_block",
        in_cluster="cluster" in row.get("PlacementGroupInfo", {}).get("SupportedStrategies", ["cluster"]),
        gpu_memory_gib=round(gpu.get("MemoryInfo", {}).get("SizeInMiB", 0) / 1024, 2),
    )


def _architectures() -> dict[str, str]:
    """The architectures of GPUs: those of the catalog, and older ones that today's drivers and images leave out."""
    known = {one.gpu_model: one.architecture for one in load().values() if one.gpu_model and one.architecture}
    return {**known, "K80": "sm_37", "M60": "sm_52"}


def _gpu(row: Mapping[str, Any]) -> Mapping[str, Any]:
    gpus: list[Mapping[str, Any]] = row.get("GpuInfo", {}).get("Gpus", [])
    return gpus[0] if gpus else {}


def _network(network: Mapping[str, Any]) -> Rate:
    """The sum over all cards, which are not always described one by one: "Up to 10 Gigabit", "4x 100 Gigabit"."""
    numbers = re.findall(r"[\d.]+", network.get("NetworkPerformance", ""))
    peak = math.prod(map(float, numbers)) if numbers else 0.0
    cards = network.get("NetworkCards", ())
    return Rate(cards[0].get("BaselineBandwidthInGbps", peak) if len(cards) == 1 else peak, peak)
