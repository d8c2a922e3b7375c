"""Whether data volumes are filled from their snapshot at a promised rate, which AWS bills per start.  Pure."""

from dataclasses import dataclass

from launch.core.catalog import Instance
from launch.core.estimate.volume import MIB, NewVolume, lazy_bytes_per_s, rate_for, rate_paid
from launch.core.estimate.words import hours
from launch.core.price import Prices, initialization_usd, usd
from launch.core.published import Content
from launch.ec2.facts import Snapshot
from launch.ec2.resolved import Resolved


@dataclass(frozen=True)
class Filling:
    """rate: MiB/s, None if AWS promises none; usd: of one volume; seconds: until it is full."""

    rate: int | None = None
    usd: float = 0.0
    seconds: float = 0.0


AS_AWS_PLEASES = Filling()


def filling(resolved: Resolved, instance: Instance, snapshot: Snapshot | None, prices: Prices) -> Filling:
    """How the volume of a node of this type is filled: at a rate where that is worth its price, or wanted."""
    if resolved.data_volume != "per-node" or snapshot is None:
        return AS_AWS_PLEASES
    options, gib = resolved.options, snapshot.data_gib
    read = resolved.train.read_gib(instance, options.nodes, gpus=resolved.nproc(instance), content=snapshot.content)
    rate = rate_paid(options.fill_volumes, gib, options.nodes, prices.of(instance), prices.storage, read)
    return _at(rate, gib, prices)


def promised(resolved: Resolved, snapshot: Snapshot | None, prices: Prices) -> Filling:
    """The same if it is paid for, whether worth it or not; without a rate where the quota does not suffice."""
    return _at(rate_for(resolved.options.nodes), snapshot.data_gib if snapshot else 0.0, prices)


def _at(rate: int | None, gib: float, prices: Prices) -> Filling:
    if rate is None:
        return AS_AWS_PLEASES
    return Filling(rate, initialization_usd(gib, rate) * prices.storage, gib * 1024 / rate)


def new_volume(resolved: Resolved, snapshot: Snapshot | None, fill: Filling) -> NewVolume | None:
    """The volume that each node gets of its own; None without one, and where all nodes read the same."""
    if resolved.data_volume != "per-node" or snapshot is None:
        return None
    return NewVolume(fill.rate, snapshot.data_gib)


def paid(fill: Filling, content: Content | None, nodes: int) -> str:
    """What a rate costs, and what it allows until the volume is full, where the size of an image is known."""
    assert fill.rate is not None
    if not fill.seconds:
        return f"data volumes are filled at {fill.rate} MiB/s, billed by the data in the snapshot, which is not known"
    how = f"its data volume is filled at {fill.rate} MiB/s, in {max(1, round(fill.seconds / 60))} min"
    words = f"{usd(fill.usd)} of it per node and start: {how}"
    if content is None:
        return words
    return f"{words}; until then it gives {fill.rate * MIB / content.image_bytes * nodes:,.0f} images/s in all"


def unpaid(saved_h: float, better: Filling) -> str:
    """What a volume gives at first without a rate, and what a rate would save of the job."""
    lazy = lazy_bytes_per_s().value / MIB
    words = f"data volumes load from S3 as they are read, at some {lazy:.0f} MiB/s at first (AWS promises nothing)"
    if saved_h * 60 < 1:
        return words
    return f"{words}; --fill-volumes always saves {hours(saved_h)} for {usd(better.usd)} per node and start"
