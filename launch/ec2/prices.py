"""What a job's nodes and volumes will cost per hour and at most.  Pure."""

from launch.core.catalog import Instance
from launch.core.price import CATALOGS, Prices, Volume, usd_per_hour
from launch.core.volumes import data_volume, io2_volume
from launch.ec2.resolved import Resolved


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
