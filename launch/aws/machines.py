"""Subnets, security groups, time limits and vCPU quotas of the toolkit's EC2 machines."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from launch.aws.client import Aws
from launch.aws.names import SWEEPER_DOCUMENT, TOOLKIT
from launch.core.catalog import Instance
from launch.core.errors import AwsError
from launch.core.plan import FromAnswer, Request
from trainer.errors import SettingsError


@dataclass(frozen=True)
class Subnet:
    """A subnet that nodes can start in: one per zone."""

    id: str
    zone: str
    vpc: str
    gives_addresses: bool = True  # public ones, to instances with one network interface


def find_subnets(aws: Aws, ids: tuple[str, ...], zones: tuple[str, ...]) -> tuple[Subnet, ...]:
    """The subnets `ids`, or the default VPC's; if given, only those in `zones` and in that order."""
    query: dict[str, Any] = {"Filters": [{"Name": "default-for-az", "Values": ["true"]}]}
    if ids:
        query = {"SubnetIds": list(ids)}
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


# EC2's errors for resources that were created a moment ago.
NOT_YET = ("InvalidGroup.NotFound", "InvalidPlacementGroup.Unknown", "InvalidVolume.NotFound",
           "InvalidInstanceID.NotFound")  # fmt: skip
HTTPS: Mapping[str, Any] = {
    "IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "IpRanges": [{"CidrIp": "0.0.0.0/0"}],
}  # fmt: skip
EVERYWHERE: Mapping[str, Any] = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
EVERYWHERE_IPV6: Mapping[str, Any] = {"IpProtocol": "-1", "Ipv6Ranges": [{"CidrIpv6": "::/0"}]}


def inbound(group: str | FromAnswer, permissions: Sequence[Any], why: str) -> Request:
    return _rule("AuthorizeSecurityGroupIngress", group, permissions, why, "InvalidPermission.Duplicate")


def outbound(group: str | FromAnswer, permissions: Sequence[Any], why: str) -> Request:
    return _rule("AuthorizeSecurityGroupEgress", group, permissions, why, "InvalidPermission.Duplicate")


def nothing_else_out(group: str | FromAnswer) -> list[Request]:
    """Remove the rules that EC2 adds to each new group; the second exists only in a VPC with IPv6.

    In other VPCs EC2 refuses IPv6 ranges, as Terraform's AWS provider documents: "InvalidParameterValue ...
    remote-ipv6-range".
    """
    gone = "InvalidPermission.NotFound"
    return [
        _rule("RevokeSecurityGroupEgress", group, [EVERYWHERE], "remove the allow-all rule", gone),
        _rule("RevokeSecurityGroupEgress", group, [EVERYWHERE_IPV6], "and that of IPv6", gone, "InvalidParameterValue"),
    ]


def _rule(operation: str, group: str | FromAnswer, permissions: Sequence[Any], why: str, *done_already: str) -> Request:
    params = {"GroupId": group, "IpPermissions": permissions}
    return Request("ec2", operation, params, why, done_already, retry_after=NOT_YET)


SCHEDULE_GROUP = TOOLKIT
GRACE = timedelta(minutes=5)
GRACE_MINUTES = "GraceMinutes"  # the parameter of the sweeper's document in infra/cloudformation/account.yaml


def time_limit(name: str, deadline: datetime, role: str, *, exists: bool) -> list[Request]:
    """The requests for a one-time schedule, made before anything is billed.

    It ends machines by the deadline in their tags, which includes those that are started later.  The schedule's role
    can start only the sweeper, as AWS lets a launcher write any target into a schedule.
    """
    automation = {"DocumentName": SWEEPER_DOCUMENT, "Parameters": {GRACE_MINUTES: ["0"]}}
    schedule = {
        "Name": name,
        "GroupName": SCHEDULE_GROUP,
        # Later than the machines' own timers.
        "ScheduleExpression": f"at({deadline + GRACE:%Y-%m-%dT%H:%M:%S})",
        "ScheduleExpressionTimezone": "UTC",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE",
        "Target": {
            "Arn": "arn:aws:scheduler:::aws-sdk:ssm:startAutomationExecution",
            "RoleArn": role,
            "Input": json.dumps(automation),
        },
    }
    group = Request(
        "scheduler",
        "CreateScheduleGroup",
        {"Name": SCHEDULE_GROUP, "Tags": [{"Key": SCHEDULE_GROUP, "Value": "time limits"}]},
        "create the schedule group",
        ("ConflictException",),
    )
    why = "terminate the nodes of the job at its time limit"
    if exists:
        return [Request("scheduler", "UpdateSchedule", schedule, why)]
    # The group has only just been created.
    not_yet = ("ResourceNotFoundException",)
    return [group, Request("scheduler", "CreateSchedule", schedule, why, ("ConflictException",), retry_after=not_yet)]


# EC2's states of an instance that counts against a quota.
COUNTED = ("pending", "running")


@dataclass(frozen=True)
class Quota:
    """The vCPUs of a family of types that the account may run, and those in use."""

    name: str
    limit: float
    running: int


@dataclass(frozen=True)
class Family:
    """A quota and the generations of types that share it: p5, or p for any p with a number."""

    code: str
    name: str
    generations: tuple[str, ...]
    spot: bool

    def counts(self, instance_type: str) -> bool:
        """Whether the type counts against it; trn1 is not of the family t."""
        patterns = [name if name[-1].isdigit() else name + r"\d" for name in self.generations]
        return re.match("|".join(patterns), instance_type) is not None

    def is_of(self, instance_type: str, *, spot: bool) -> bool:
        """Whether a running instance counts against it."""
        return self.counts(instance_type) and spot == self.spot


_STANDARD = ("a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z")
_GRAPHICS = ("g", "gr", "vt")
_FAMILIES = (
    Family("L-DB2E81BA", "Running On-Demand G and VT instances", _GRAPHICS, False),
    Family("L-417A185B", "Running On-Demand P instances", ("p",), False),
    Family("L-1216C47A", "Running On-Demand Standard instances", _STANDARD, False),
    Family("L-3819A6DF", "All G and VT Spot Instance Requests", _GRAPHICS, True),
    Family("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", ("p2", "p3", "p4"), True),
    Family("L-C4BD4855", "All P5 Spot Instance Requests", ("p5",), True),
    Family("L-34B43A08", "All Standard Spot Instance Requests", _STANDARD, True),
)


def quota_of(instance: Instance, spot: bool) -> Family:
    """The quota that limits how many of `instance` run; one without a code if it is not in the table."""
    families = (family for family in _FAMILIES if family.spot == spot and family.counts(instance.name))
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
        quotas[family.name] = Quota(family.name, float(limit), in_use)
    return quotas


def _is_spot(node: Mapping[str, Any]) -> bool:
    return bool(node.get("InstanceLifecycle") == "spot")


def _vcpus(node: Mapping[str, Any]) -> int:
    cpu = node.get("CpuOptions", {})
    return int(cpu.get("CoreCount", 0) * cpu.get("ThreadsPerCore", 0))


def shortage(quota: Quota | None, needed: int, who: str, instead: str) -> AwsError | None:
    """Why so many vCPUs exceed the quota; None if they do not, or the quota is not known.

    who: needs them, with the verb; instead: the alternative to a higher quota.
    """
    if quota is None or needed <= 0 or needed + quota.running <= quota.limit:
        return None
    return AwsError(
        f"{who} {needed} vCPUs, {quota.running} are in use, and the quota '{quota.name}' is {quota.limit:g}; request "
        f"more under Service Quotas, or {instead}."
    )
