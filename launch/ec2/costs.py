"""The cost of a job, per hour and so far, with the hours that it depends on.  Pure.

Prices are on demand, an upper bound for spot: those in the nodes' tags, else us-east-1's.  Logs, S3, addresses and
traffic are not counted.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from launch.core import catalog
from launch.core.price import GIB, Volume
from launch.core.price import usd_per_hour as volume_usd_per_hour
from launch.ec2.inventory import Fleet, Node, Resource

# A stopped node costs only its volumes.  A pending one is about to be billed.
BILLED = ("pending", "running")
# How long EC2 lists a node after its end, at least.
REMEMBERED = timedelta(minutes=50)


def usd_per_hour(fleet: Fleet) -> float:
    """USD per hour of all that `fleet` has now."""
    return sum(map(node_usd, fleet.nodes)) + sum(map(resource_usd, fleet.resources))


def node_usd(node: Node) -> float:
    """USD per hour of a node now, without its volumes."""
    return _price(node) if node.state in BILLED else 0.0


def resource_usd(resource: Resource) -> float:
    """USD per hour of anything else; only volumes cost something."""
    if resource.kind != "volume":
        return 0.0
    # The toolkit creates gp3 and io2; a volume that somebody converted costs about as much as gp3.
    kind = resource.volume_type if resource.volume_type in GIB else "gp3"
    return volume_usd_per_hour(Volume(resource.gib, kind, resource.iops, resource.mib_per_s))


def cost_so_far(fleet: Fleet, now: datetime) -> float:
    """USD of the nodes since each job's start, with those that ended, and of the volumes that exist."""
    total = 0.0
    for node in this_start(fleet):
        total += node.usd_once + _price(node) * _hours(node.launched_at, _end(node, now))
    for resource in fleet.resources:
        total += resource_usd(resource) * _hours(resource.created or now, now)
    return total


def this_start(fleet: Fleet) -> tuple[Node, ...]:
    """The nodes without those of an earlier start of a job of the same name."""
    return tuple(node for node in fleet.nodes if node.started in (None, fleet.started.get(node.job)))


def is_whole(fleet: Fleet, now: datetime) -> bool:
    """Whether cost_so_far counts every node of a job; EC2 forgets those that were replaced a while ago."""
    replaced = [node for node in this_start(fleet) if node.generation > 1]
    return all(now - (node.started or node.launched_at) < REMEMBERED for node in replaced)


def unpriced(fleet: Fleet) -> tuple[str, ...]:
    """The types that the catalog has no price for, and which are therefore not counted."""
    return tuple(sorted({node.type for node in fleet.nodes if node.usd_per_hour is None} - set(catalog.load())))


def most_it_cost(spec: Mapping[str, Any], until: datetime) -> float:
    """The most USD that the job of this job.json can have cost by `until`, without its data volume."""
    where = spec["where"]
    node = max(map(_list_price, where["instance_type"])) + volume_usd_per_hour(Volume(where["root_gb"]))
    return float(where["nodes"] * node * _hours(datetime.fromtimestamp(spec["started"], UTC), until))


def _price(node: Node) -> float:
    return _list_price(node.type) if node.usd_per_hour is None else node.usd_per_hour


def _list_price(instance_type: str) -> float:
    known = catalog.load().get(instance_type)
    return known.usd_per_hour if known else 0.0


def _end(node: Node, now: datetime) -> datetime:
    """When the node stopped being billed; `now` where EC2 does not say."""
    return now if node.state in BILLED else node.ended_at or now


def _hours(since: datetime, until: datetime) -> float:
    return max(0.0, (until - since).total_seconds() / 3600)
