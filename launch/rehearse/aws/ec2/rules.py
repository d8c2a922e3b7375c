"""What the embedded EC2 has and allows, with its eventual consistency and its client tokens."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError

from launch.rehearse.aws.access import Access
from launch.rehearse.aws.batch.jobs import Batch
from launch.rehearse.aws.calls import Check, Refusal, SignedCall
from launch.rehearse.aws.iam.policies import FULL_ACCESS, Policy

# Service Quotas' codes for vCPUs -> prefixes of the instance types, and whether they are spot.
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
    """Eventual consistency of the embedded EC2, counted in answers of DescribeInstances."""

    hidden: int = 0  # answers in which a new node is not listed yet
    pending: int = 1  # answers in which it is pending
    ending: int = 1  # answers in which it is shutting down
    unknown: int = 0  # requests that name a new resource and do not find it


@dataclass
class Rules:
    """What the embedded EC2 has and allows."""

    capacity: dict[str | tuple[str, str], int] = field(default_factory=dict)  # instances by zone, type or (type, zone)
    quota: dict[str, float] = field(default_factory=lambda: dict.fromkeys(QUOTAS, 768.0))  # vCPUs by code
    spot_usd: dict[str, float] = field(default_factory=dict)  # by zone
    spot_scores: dict[str, int] = field(default_factory=dict)  # by zone, 1 to 10
    slow: Slow = field(default_factory=Slow)
    address: Callable[[str], str] = lambda moto: moto  # of a node, in place of moto's
    placement_groups: dict[str, SimpleNamespace] = field(default_factory=dict)
    reservations: dict[str, SimpleNamespace] = field(default_factory=dict)
    # Reasons for which the next instances end instead of running.
    failed_starts: list[str] = field(default_factory=list)
    has_spot_role: bool = True  # the service-linked role
    initialization_mib_s: int = 5000  # the quota of all volumes together
    fresh: dict[str, int] = field(default_factory=dict)  # new resources, and how often they will not be found yet
    # StartSnapshot's requests and answers, by client token.
    direct: dict[str, tuple[str, Any]] = field(default_factory=dict)
    now: Callable[[], float] = time.time  # s since the epoch
    access: Access = field(default_factory=Access)
    # Requests and answers, by client token.
    answered: dict[tuple[str, str, str], tuple[str, Any]] = field(default_factory=dict)
    default_key: str = "alias/aws/ebs"  # of new volumes; AWS's own, unless the user sets another
    public_access: str = "off"  # VPC Block Public Access: off, block-ingress or block-bidirectional
    excluded: list[str] = field(default_factory=list)  # ARNs of VPCs and subnets, from that
    organization: list[Policy] = field(default_factory=lambda: [FULL_ACCESS])  # its service control policies
    lock: Any = field(default_factory=threading.RLock)  # of everything that is under these rules

    batch: Batch = field(default_factory=Batch)  # queues in front of it

    def __post_init__(self) -> None:
        self.access.groups = self.placement_groups
        self.batch.now = lambda: datetime.fromtimestamp(self.now(), UTC)


# ---- eventual consistency: https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html


# Prefix of an ID -> AWS's error code.  https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
UNKNOWN = {
    "i-": "InvalidInstanceID.NotFound",
    "sg-": "InvalidGroup.NotFound",
    "vol-": "InvalidVolume.NotFound",
    "": "InvalidPlacementGroup.Unknown",  # these have names of the user's own
}


def mark_new(rules: Any, name: str) -> None:
    """Hide a new resource from the first requests that name it."""
    if rules.slow.unknown:
        rules.fresh[name] = rules.slow.unknown


def consistency_check(rules: Any) -> Check:
    """The check of all requests to EC2 that name a resource.  Listings by filters are late elsewhere."""

    def check(signed: SignedCall) -> Refusal | None:
        if signed.call.service != "ec2" or signed.call.operation.startswith("Create"):
            return None
        for name in _names(signed.call.params):
            if rules.fresh.get(name, 0) > 0:
                rules.fresh[name] -= 1
                code = next(code for start, code in UNKNOWN.items() if name.startswith(start))
                return Refusal(400, code, f"The ID '{name}' does not exist")
        return None

    return check


def _names(value: Any) -> Iterator[str]:
    """All texts in a request's parameters but tags."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in ("TagSpecifications", "Filters", "UserData"):
                yield from _names(item)
    elif isinstance(value, list):
        for item in value:
            yield from _names(item)


# ---- client tokens: https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html


def once(rules: Rules, response: Any, act: Callable[[], ActionResult]) -> ActionResult:
    """Call `act` once per client token; a repeated request gets the first answer with its resources' current state."""
    token = response._get_param("ClientToken") or ""
    key, request = (response.region, response._get_action(), token), json.dumps(response.params, default=str)
    if token and key in rules.answered:
        earlier_request, answer = rules.answered[key]
        if earlier_request != request:
            raise EC2ClientError(
                "IdempotentParameterMismatch", "The request uses the same client token as a previous, but different one"
            )
        if any(node.state == "terminated" for node in getattr(answer, "instances", ())):
            raise EC2ClientError(
                "IdempotentInstanceTerminated",
                "The request uses the same client token as a previous one whose instance has been terminated",
            )
        return ActionResult(answer)
    result = act()
    if token:
        rules.answered[key] = (request, result.result)
    return result
