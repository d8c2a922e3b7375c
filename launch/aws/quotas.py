"""The vCPU quotas that limit how many instances of a type run: which there are, what is in use, and what is too much.

Codes and names: https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from launch.aws.client import Aws
from launch.core.catalog import Instance
from launch.core.errors import AwsError

# EC2's states of an instance that counts.
COUNTED = ("pending", "running")


@dataclass(frozen=True)
class Quota:
    """The vCPUs of a family of types that the account may run, and those that run."""

    name: str
    limit: float
    running: int


@dataclass(frozen=True)
class Family:
    """A quota and the generations of types that share it: p5, or p for every p with a number after it."""

    code: str
    name: str
    generations: tuple[str, ...]
    spot: bool

    def counts(self, instance_type: str) -> bool:
        """Whether the type counts against it; trn1 is not one of the t's."""
        patterns = [name if name[-1].isdigit() else name + r"\d" for name in self.generations]
        return re.match("|".join(patterns), instance_type) is not None

    def is_of(self, instance_type: str, *, spot: bool) -> bool:
        """Whether an instance that runs counts against it."""
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
    """The quota that limits how many of `instance` run."""
    return next(family for family in _FAMILIES if family.spot == spot and family.counts(instance.name))


def find_quotas(aws: Aws, families: Iterable[Family]) -> dict[str, Quota]:
    """These quotas by their names, with what is in use."""
    running = {"Filters": [{"Name": "instance-state-name", "Values": list(COUNTED)}]}
    reservations = aws.pages("ec2", "DescribeInstances", "Reservations", running)
    nodes = [node for reservation in reservations for node in reservation["Instances"]]
    quotas = {}
    for family in families:
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
    """Why so many vCPUs are too many; None if they are not, or nobody knows.

    who: needs them, with the verb; instead: what else can be done than to ask for more.
    """
    if quota is None or needed <= 0 or needed + quota.running <= quota.limit:
        return None
    return AwsError(
        f"{who} {needed} vCPUs, {quota.running} are in use, and the quota '{quota.name}' is {quota.limit:g}; request "
        f"more under Service Quotas, or {instead}."
    )
