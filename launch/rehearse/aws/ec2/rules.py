"""What the embedded EC2 has and allows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

# Service Quotas' codes for vCPUs: how the types' names begin, and whether they are spot.
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
    """For how many answers of DescribeInstances a node is not listed yet, is pending, and is shutting down."""

    hidden: int = 0
    pending: int = 1
    ending: int = 1


@dataclass
class Rules:
    """What AWS has and allows.

    capacity: instances by zone, type or (type, zone); quota: vCPUs by code; spot_usd: by zone; address: of a node, in
    place of moto's; answered: requests and answers by client token.
    """

    capacity: dict[str | tuple[str, str], int] = field(default_factory=dict)
    quota: dict[str, float] = field(default_factory=lambda: dict.fromkeys(QUOTAS, 768.0))
    spot_usd: dict[str, float] = field(default_factory=dict)
    slow: Slow = field(default_factory=Slow)
    address: Callable[[str], str] = lambda moto: moto
    placement_groups: dict[str, SimpleNamespace] = field(default_factory=dict)
    reservations: dict[str, SimpleNamespace] = field(default_factory=dict)
    answered: dict[tuple[str, str, str], tuple[str, Any]] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.RLock)  # of everything that is under these rules
