"""The cost of a job, per hour and so far.  Pure.

Prices are on-demand prices, an upper bound for spot: from the nodes' tags, else those of us-east-1.  Logs, S3,
addresses and traffic are not counted.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from launch.aws.instances.inventory import Fleet, Node, Resource
from launch.core import catalog
from launch.core.estimate.volume import root_volume
from launch.core.price import GIB, Volume
from launch.core.price import usd_per_hour as volume_usd_per_hour

# A stopped node costs only its volumes.  A pending one will be billed in a moment.
BILLED = ("pending", "running")
# EC2 lists a terminated node for at least this long.
REMEMBERED = timedelta(minutes=50)


def usd_per_hour(fleet: Fleet) -> float:
    """USD per hour of everything in `fleet` now."""
    return sum(map(node_usd, fleet.nodes)) + sum(map(resource_usd, fleet.resources))


def node_usd(node: Node) -> float:
    """USD per hour of a node now, without its volumes."""
    return _price(node) if node.state in BILLED else 0.0


def resource_usd(resource: Resource) -> float:
    """USD per hour of a resource other than a node; only volumes cost money."""
    if resource.kind != "volume":
        return 0.0
    # The toolkit creates gp3 and io2; a volume converted to another type costs about as much as gp3.
    kind = resource.volume_type if resource.volume_type in GIB else "gp3"
    return volume_usd_per_hour(Volume(resource.gib, kind, resource.iops, resource.mib_per_s))


def cost_so_far(fleet: Fleet, now: datetime) -> float:
    """USD of all nodes since each job's start, terminated ones included, and of the existing volumes."""
    total = 0.0
    for node in this_start(fleet):
        total += node.usd_once + _price(node) * _hours(node.begun, _end(node, now))
    for resource in fleet.resources:
        created = resource.created or now
        total += resource_usd(resource) * _hours(max(created, fleet.started.get(resource.job, created)), now)
    return total


def this_start(fleet: Fleet) -> tuple[Node, ...]:
    """The nodes of each job's current start, without those of an earlier start under the same name."""
    return tuple(node for node in fleet.nodes if node.started in (None, fleet.started.get(node.job)))


def is_whole(fleet: Fleet, now: datetime) -> bool:
    """Whether cost_so_far counts every node of a job; EC2 forgets nodes that were replaced a while ago."""
    replaced = [node for node in this_start(fleet) if node.generation > 1]
    return all(now - (node.started or node.launched_at) < REMEMBERED for node in replaced)


def unpriced(fleet: Fleet) -> tuple[str, ...]:
    """The types without a price in the catalog, which are not counted."""
    return tuple(sorted({node.type for node in fleet.nodes if node.usd_per_hour is None} - set(catalog.load())))


def most_it_cost(spec: Mapping[str, Any], until: datetime) -> float:
    """Upper bound in USD of the job of this job.json until `until`, without its data volume."""
    where = spec["where"]
    node = max(map(_list_price, where["instance_type"])) + volume_usd_per_hour(root_volume(where["root_gb"]))
    return float(where["nodes"] * node * _hours(datetime.fromtimestamp(spec["started"], UTC), until))


def _price(node: Node) -> float:
    return _list_price(node.type) if node.usd_per_hour is None else node.usd_per_hour


def _list_price(instance_type: str) -> float:
    known = catalog.load().get(instance_type)
    return known.usd_per_hour if known else 0.0


def _end(node: Node, now: datetime) -> datetime:
    """When billing of the node ended; `now` if EC2 does not say."""
    return now if node.state in BILLED else node.ended_at or now


def _hours(since: datetime, until: datetime) -> float:
    return max(0.0, (until - since).total_seconds() / 3600)
