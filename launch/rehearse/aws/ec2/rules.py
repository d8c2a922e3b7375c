"""What the embedded EC2 has and allows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from launch.rehearse.aws.access import Access
from launch.rehearse.aws.iam.policies import Policy

# https://docs.aws.amazon.com/organizations/latest/userguide/orgs_manage_policies_scps.html: FullAWSAccess.
EVERYTHING: Policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
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
    """For how many answers of DescribeInstances a node is not listed yet, is pending, and is shutting down.

    unknown: how often requests that name a new resource are told that there is none.
    """

    hidden: int = 0
    pending: int = 1
    ending: int = 1
    unknown: int = 0


@dataclass
class Rules:
    """What AWS has and allows.

    capacity: instances by zone, type or (type, zone); quota: vCPUs by code; spot_usd: by zone; address: of a node, in
    place of moto's; answered: requests and answers by client token; stillborn: reasons for which the next instances end
    instead of running; has_spot_role: the service-linked role; initialization_mib_s: the quota of all volumes together;
    fresh: new resources, and how often they will not be found yet; direct: requests and answers of StartSnapshot by
    client token; now: seconds since the epoch.
    """

    capacity: dict[str | tuple[str, str], int] = field(default_factory=dict)
    quota: dict[str, float] = field(default_factory=lambda: dict.fromkeys(QUOTAS, 768.0))
    spot_usd: dict[str, float] = field(default_factory=dict)
    slow: Slow = field(default_factory=Slow)
    address: Callable[[str], str] = lambda moto: moto
    placement_groups: dict[str, SimpleNamespace] = field(default_factory=dict)
    reservations: dict[str, SimpleNamespace] = field(default_factory=dict)
    stillborn: list[str] = field(default_factory=list)
    has_spot_role: bool = True
    initialization_mib_s: int = 5000
    fresh: dict[str, int] = field(default_factory=dict)
    direct: dict[str, tuple[str, Any]] = field(default_factory=dict)
    now: Callable[[], float] = time.time
    access: Access = field(default_factory=Access)
    answered: dict[tuple[str, str, str], tuple[str, Any]] = field(default_factory=dict)
    default_key: str = "alias/aws/ebs"  # of new volumes; AWS's own, unless the user sets another
    public_access: str = "off"  # VPC Block Public Access: off, block-ingress or block-bidirectional
    excluded: list[str] = field(default_factory=list)  # ARNs of VPCs and subnets, from that
    organization: list[Policy] = field(default_factory=lambda: [EVERYTHING])  # its service control policies
    lock: Any = field(default_factory=threading.RLock)  # of everything that is under these rules

    def __post_init__(self) -> None:
        self.access.groups = self.placement_groups
