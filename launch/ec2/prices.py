"""What a job's nodes and volumes will cost per hour and at most, and the volumes that its data get.  Pure."""

from dataclasses import replace

from launch.core.catalog import Instance
from launch.core.price import CATALOGS, Prices, Volume, usd_per_hour
from launch.ec2.resolved import Resolved

IO2_LEAST_GIB = 4


def node_usd(resolved: Resolved, instance: Instance, prices: Prices) -> float:
    """USD per hour of a node on demand; nothing for one of a capacity block, which was paid in advance."""
    return 0.0 if resolved.options.capacity_block else prices.of(instance)


def hourly_usd(
    resolved: Resolved, instance: Instance, data_gib: int, prices: Prices = CATALOGS, usd: float | None = None
) -> float:
    """USD per hour of all nodes with their volumes.  usd: of one node (default: the on-demand price)."""
    node = node_usd(resolved, instance, prices) if usd is None else usd
    nodes = resolved.options.nodes
    disks = nodes * usd_per_hour(Volume(resolved.options.root_gb))
    if resolved.data_volume == "multi-attach":
        disks += usd_per_hour(io2_volume(data_gib))
    if resolved.data_volume == "per-node":
        disks += nodes * usd_per_hour(data_volume(instance, data_gib))
    return nodes * node + disks * prices.storage


def highest_usd(
    resolved: Resolved, instance: Instance, data_gib: int, prices: Prices = CATALOGS, once_usd: float = 0.0
) -> float:
    """USD until the time limit, on demand: spot prices may rise that far.

    once_usd: what the start of a node costs; each restart may replace all of them.
    """
    options = resolved.options
    starts = options.nodes * (1 + options.max_restarts)
    return hourly_usd(resolved, instance, data_gib, prices) * options.max_hours + once_usd * starts


def data_volume(instance: Instance, gib: int) -> Volume:
    """A gp3 volume as fast as the instance can read in bursts.

    Limits: 3,000 to 80,000 I/O operations a second, at most 500 per GiB beyond the first 3,000; 125 to 2,000 MiB/s,
    at most a quarter per operation: https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html
    """
    mib_per_s = int(min(2000, max(125, instance.ebs_mb_per_s.peak * 1e6 / 2**20)))
    iops = max(3000, min(mib_per_s * 4, 500 * gib or mib_per_s * 4))  # 0 GiB: not known yet
    return replace(Volume(gib), throughput_mib_per_s=min(mib_per_s, iops // 4), iops=iops)


def io2_volume(gib: int) -> Volume:
    """One volume that all nodes read; io2 allows 500 operations a second per GiB, and has at least 4.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateVolume.html, Size.  gib: 0 if it is not known yet.
    """
    gib = max(IO2_LEAST_GIB, gib) if gib else 0
    return Volume(gib, kind="io2", iops=max(100, min(16_000, 500 * gib or 16_000)), throughput_mib_per_s=0)
