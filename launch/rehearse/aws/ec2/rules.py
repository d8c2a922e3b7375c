"""What the embedded EC2 has and allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

# Service Quotas' codes for vCPUs: the beginnings of the types' names, and whether they are spot.
# https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
STANDARD = ("a", "c", "d", "h", "i", "m", "r", "t", "z")
QUOTAS = {
    "L-DB2E81BA": (("g", "vt"), False),
    "L-417A185B": (("p",), False),
    "L-1216C47A": (STANDARD, False),
    "L-3819A6DF": (("g", "vt"), True),
    "L-7212CCBC": (("p2", "p3", "p4"), True),
    "L-C4BD4855": (("p5",), True),
    "L-34B43A08": (STANDARD, True),
}


@dataclass
class Slow:
    """In how many answers of DescribeInstances a node is not there yet, is pending, and is shutting down."""

    hidden: int = 0
    pending: int = 1
    ending: int = 1


@dataclass
class Rules:
    """What AWS has and allows.  capacity: machines by zone, type or (type, zone); quota: vCPUs by code; address: the
    address that a node has in place of moto's.
    """

    capacity: dict[str | tuple[str, str], int] = field(default_factory=dict)
    quota: dict[str, float] = field(default_factory=lambda: dict.fromkeys(QUOTAS, 768.0))
    spot_usd: dict[str, float] = field(default_factory=dict)  # by zone
    slow: Slow = field(default_factory=Slow)
    address: Callable[[str], str] = lambda moto: moto
    placement_groups: dict[str, SimpleNamespace] = field(default_factory=dict)
    reservations: dict[str, SimpleNamespace] = field(default_factory=dict)
    answered: dict[tuple[str, str, str], tuple[str, Any]] = field(default_factory=dict)  # by client token
