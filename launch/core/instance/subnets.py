"""The subnets that machines can start in.  Reads only."""

from dataclasses import dataclass
from typing import Any

from launch.core.aws import Aws
from trainer.errors import SettingsError


@dataclass(frozen=True)
class Subnet:
    """A subnet that nodes can start in: one per zone."""

    id: str
    zone: str
    vpc: str
    gives_addresses: bool = True  # public ones, to instances with one network interface


def find_subnets(aws: Aws, wanted: tuple[str, ...], zones: tuple[str, ...]) -> tuple[Subnet, ...]:
    """The subnets in `wanted`, or the default VPC's; in the order of `zones`, if given, and only those."""
    query: dict[str, Any] = {"Filters": [{"Name": "default-for-az", "Values": ["true"]}]}
    if wanted:
        query = {"SubnetIds": list(wanted)}
    rows = aws.pages("ec2", "DescribeSubnets", "Subnets", query)
    subnets = [
        Subnet(row["SubnetId"], row["AvailabilityZone"], row["VpcId"], row.get("MapPublicIpOnLaunch", False))
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
