"""Whether data volumes are filled from their snapshot at a promised rate, which AWS bills per start.  Pure.

https://docs.aws.amazon.com/ebs/latest/userguide/initalize-volume.html: billed in full as soon as the volume is there,
by the data in the snapshot and the rate; the request fails if AWS has no capacity for it, or beyond the quota.
"""

from dataclasses import dataclass

from launch.core.catalog import Instance
from launch.core.price import Prices, initialization_usd
from launch.ec2.facts import Snapshot
from launch.ec2.resolved import Resolved

# Quota "EBS: provisioned rate for volume initialization" of a region, and the range of one volume, in MiB/s.
QUOTA, RANGE = 5000, (100, 300)
# What a volume gives of data that are still in S3.  AWS promises nothing; our assumption, to weigh the price against.
LAZY_MIB_PER_S = 50


@dataclass(frozen=True)
class Filling:
    """rate: MiB/s, None if AWS promises none; usd: of one volume; seconds: until it is full."""

    rate: int | None = None
    usd: float = 0.0
    seconds: float = 0.0


AS_AWS_PLEASES = Filling()


def filling(resolved: Resolved, instance: Instance, snapshot: Snapshot | None, prices: Prices) -> Filling:
    """How the volume of a node of this type is filled: at a rate where the time that it saves is worth its price."""
    rate = rate_for(resolved.options.nodes)
    if resolved.data_volume != "per-node" or snapshot is None or rate is None:
        return AS_AWS_PLEASES
    mib = snapshot.data_gib * 1024
    price = initialization_usd(snapshot.data_gib, rate) * prices.storage
    saved_s = mib / LAZY_MIB_PER_S - mib / rate
    if price > saved_s / 3600 * prices.of(instance):
        return AS_AWS_PLEASES
    return Filling(rate, price, mib / rate)


def rate_for(nodes: int) -> int | None:
    """MiB/s at which each volume can be filled, or None if that many nodes exceed the quota."""
    low, high = RANGE
    share = QUOTA // nodes
    return None if share < low else min(high, share)
