"""Throttling as EC2 does it: a bucket of tokens for each operation, and one of instances for those made or ended.

https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from launch.rehearse.aws.call import Call
from launch.rehearse.aws.gate import Asked
from launch.rehearse.aws.refusal import Refusal


@dataclass(frozen=True)
class Size:
    """How many tokens a bucket holds, and how many it gets per second."""

    most: float
    per_s: float


# "Request token bucket sizes and refill rates", by category; for the categories' operations see _size_of().
READS, WIDE_READS, CHANGES = Size(100, 20), Size(50, 10), Size(50, 5)
# Non-mutating operations that are costly without a filter or pages.
WIDE = {"DescribeInstances", "DescribeInstanceStatus", "DescribeNetworkInterfaces", "DescribeSecurityGroups",
        "DescribeSnapshots", "DescribeSpotInstanceRequests", "DescribeVolumes"}  # fmt: skip
NARROWED_BY = ("Filters", "MaxResults")
# Operations with buckets of their own.
OWN = {"RunInstances": Size(5, 2), "StartInstances": Size(5, 2), "TerminateInstances": Size(100, 5),
       "CreateTags": Size(100, 10), "DeleteTags": Size(100, 10), "AttachVolume": Size(100, 5),
       "CreateVolume": Size(100, 5), "DeleteVolume": Size(100, 5), "DetachVolume": Size(100, 5)}  # fmt: skip
# "Resource token bucket sizes and refill rates": a token for each instance.
INSTANCES = {"RunInstances": Size(1000, 2), "TerminateInstances": Size(1000, 20)}

EXCEEDED = Refusal(503, "RequestLimitExceeded", "Request limit exceeded.")


@dataclass
class _Bucket:
    size: Size
    tokens: float
    at: float

    def take(self, count: float, now: float) -> bool:
        """Takes tokens out, unless there are too few."""
        self.tokens = min(self.size.most, self.tokens + (now - self.at) * self.size.per_s)
        self.at = now
        if self.tokens < count:
            return False
        self.tokens -= count
        return True


@dataclass
class Throttling:
    """The buckets of all accounts and regions.  now: seconds; throttled: how many requests were refused."""

    now: Callable[[], float] = time.monotonic
    throttled: int = 0
    _buckets: dict[tuple[str, ...], _Bucket] = field(default_factory=dict)

    def check(self, asked: Asked) -> Refusal | None:
        call = asked.call
        if call.service != "ec2":
            return None
        where = (asked.account, asked.region, call.operation)
        if self._takes((*where, "requests"), _size_of(call), 1):
            size = INSTANCES.get(call.operation)
            if size is None or self._takes((*where, "instances"), size, _instances_of(call)):
                return None
        self.throttled += 1
        return EXCEEDED

    def _takes(self, name: tuple[str, ...], size: Size, count: float) -> bool:
        now = self.now()
        key = (*name, str(size))
        return self._buckets.setdefault(key, _Bucket(size, size.most, now)).take(count, now)


def _size_of(call: Call) -> Size:
    if call.operation in OWN:
        return OWN[call.operation]
    if not call.operation.startswith(("Describe", "Get", "List", "Search")):
        return CHANGES
    is_wide = call.operation in WIDE and not any(name in call.params for name in NARROWED_BY)
    return WIDE_READS if is_wide else READS


def _instances_of(call: Call) -> int:
    return int(call.params.get("MaxCount") or len(call.params.get("InstanceIds", ())))
