"""What a job costs now and has cost so far, and the hours that it goes by.  Pure.

Prices are those of us-east-1 on demand, the ceiling for spot.  Logs, S3, addresses and traffic are not counted.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from launch.core import catalog
from launch.core.price import GIB, Volume
from launch.core.price import usd_per_hour as volume_usd_per_hour
from launch.ec2.fleet import Fleet, Node, Thing

# From a stopped node on, only its volumes cost.  A pending one is about to.
BILLED = ("pending", "running")
# How long EC2 shows a node after its end, at least.
REMEMBERED = timedelta(minutes=50)


def usd_per_hour(fleet: Fleet) -> float:
    """USD per hour of all that `fleet` has now."""
    return sum(map(node_usd, fleet.nodes)) + sum(map(thing_usd, fleet.things))


def node_usd(node: Node) -> float:
    """USD per hour of a node now, without its volumes."""
    return _price(node.type) if node.state in BILLED else 0.0


def thing_usd(thing: Thing) -> float:
    """USD per hour of anything else; only volumes cost."""
    if thing.kind != "volume":
        return 0.0
    # The toolkit makes gp3 and io2; what somebody else made of one costs about as much as gp3.
    kind = thing.volume_type if thing.volume_type in GIB else "gp3"
    return volume_usd_per_hour(Volume(thing.gib, kind, thing.iops, thing.mib_per_s))


def cost_so_far(fleet: Fleet, now: datetime) -> float:
    """USD that the nodes since each job's start have cost, also those that ended, and the volumes that are there."""
    nodes = (_price(node.type) * _hours(node.launched_at, _end(node, now)) for node in this_start(fleet))
    volumes = (thing_usd(thing) * _hours(thing.created or now, now) for thing in fleet.things)
    return sum(nodes) + sum(volumes)


def this_start(fleet: Fleet) -> tuple[Node, ...]:
    """The nodes without those of an earlier start of a job of the same name."""
    return tuple(node for node in fleet.nodes if node.started in (None, fleet.started.get(node.job)))


def is_whole(fleet: Fleet, now: datetime) -> bool:
    """Whether cost_so_far counts every node of a job; EC2 forgets those that were replaced a while ago."""
    replaced = [node for node in this_start(fleet) if node.generation > 1]
    return all(now - (node.started or node.launched_at) < REMEMBERED for node in replaced)


def unpriced(fleet: Fleet) -> tuple[str, ...]:
    """Types that the catalog has no price of, and which are therefore not counted."""
    return tuple(sorted({node.type for node in fleet.nodes} - set(catalog.load())))


def most_it_cost(spec: Mapping[str, Any], until: datetime) -> float:
    """USD that the job of this job.json has cost at most, without its data volume, if it ended at `until`."""
    where = spec["where"]
    one = max(map(_price, where["instance_type"])) + volume_usd_per_hour(Volume(where["root_gb"]))
    return float(where["nodes"] * one * _hours(datetime.fromtimestamp(spec["started"], UTC), until))


def _price(instance_type: str) -> float:
    known = catalog.load().get(instance_type)
    return known.usd_per_hour if known else 0.0


def _end(node: Node, now: datetime) -> datetime:
    """When a node stopped costing; now, where EC2 does not say."""
    return now if node.state in BILLED else node.ended_at or now


def _hours(since: datetime, until: datetime) -> float:
    return max(0.0, (until - since).total_seconds() / 3600)
