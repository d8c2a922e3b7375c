"""EBS volume initialization: whether to load volumes from the snapshot at a paid rate, billed per start.  Pure."""

from dataclasses import dataclass

from launch.core.catalog import Instance
from launch.core.estimate.forecast import hours
from launch.core.estimate.rates import data_set, spot_share
from launch.core.estimate.volume import (
    MIB,
    NewVolume,
    data_volume,
    io2_volume,
    lazy_bytes_per_s,
    promise,
    rate_for,
    rate_paid,
)
from launch.core.price import Prices, initialization_usd, usd
from launch.ec2.checks import Resolved
from launch.ec2.facts import Snapshot


@dataclass(frozen=True)
class VolumeInit:
    """How one volume is initialized."""

    rate: int | None = None  # MiB/s, None for AWS's default, without a promise
    usd: float = 0.0
    seconds: float = 0.0  # until it is initialized


UNSET = VolumeInit()


def volume_init(resolved: Resolved, instance: Instance, snapshot: Snapshot | None, prices: Prices) -> VolumeInit:
    """How a node's volume is initialized: at a paid rate if it is worth its price, or asked for."""
    if resolved.data_volume != "per-node" or snapshot is None:
        return UNSET
    options, gib = resolved.options, _data_gib(resolved, snapshot)
    if options.fill_volumes == "auto" and not gib:
        return UNSET  # nothing was looked up, so its value is unknown
    read = resolved.train.read_gib(instance, options.nodes, gpus=resolved.nproc(instance), content=snapshot.content)
    hourly = _usd_per_hour(resolved, instance, prices)
    rate = rate_paid(options.fill_volumes, gib, options.nodes, hourly, prices.storage, read)
    return _at(rate, gib, prices)


def _usd_per_hour(resolved: Resolved, instance: Instance, prices: Prices) -> float:
    """USD per hour of a node in its market: the value of its time."""
    on_demand = prices.of(instance)
    return prices.spot.get(instance.name, spot_share().value * on_demand) if resolved.options.spot else on_demand


def _data_gib(resolved: Resolved, snapshot: Snapshot) -> float:
    """GiB in the snapshot; if it was not looked up, of the published data set, or 0 if that is unknown."""
    known = data_set(resolved.train.dataset)
    return snapshot.data_gib or (known.gib_in_all if known else 0.0)


def promised(resolved: Resolved, snapshot: Snapshot | None, prices: Prices) -> VolumeInit:
    """Initialization at a paid rate, worth it or not; without a rate if the quota is too low."""
    return _at(rate_for(resolved.options.nodes), _data_gib(resolved, snapshot) if snapshot else 0.0, prices)


def _at(rate: int | None, gib: float, prices: Prices) -> VolumeInit:
    if rate is None:
        return UNSET
    return VolumeInit(rate, initialization_usd(gib, rate) * prices.storage, gib * 1024 / rate)


def new_volume(resolved: Resolved, instance: Instance, snapshot: Snapshot | None, fill: VolumeInit) -> NewVolume | None:
    """The volume of each node of this type, or the shared one; None without a volume."""
    if resolved.data_volume == "none" or snapshot is None:
        return None
    is_shared = resolved.data_volume == "multi-attach"
    volume = io2_volume(snapshot.gib) if is_shared else data_volume(instance, snapshot.gib)
    return NewVolume(fill.rate, snapshot.data_gib, promise(volume))


def paid(fill: VolumeInit, resolved: Resolved, snapshot: Snapshot | None) -> str:
    """A sentence on the cost of a rate, and the images/s it allows until initialized, if an image's size is known."""
    assert fill.rate is not None
    content = snapshot.content if snapshot else None
    if not fill.seconds:
        return f"data volumes are filled at {fill.rate} MiB/s, billed by the data in the snapshot, which is not known"
    how = f"its data volume is filled at {fill.rate} MiB/s, in {max(1, round(fill.seconds / 60))} min"
    words = f"{usd(fill.usd)} of it per node and start: {how}"
    if snapshot is None or not snapshot.gib:
        return f"{words}, if the snapshot has {resolved.train.dataset}'s own files in it; it was not looked up"
    if content is None:
        return words
    in_all = fill.rate * MIB / content.image_bytes * resolved.options.nodes
    return f"{words}; until then it gives {in_all:,.0f} images/s in all"


def shared() -> str:
    """A sentence on the initial speed of one volume for all nodes."""
    return (
        f"the data volume loads from S3 as it is read, at some {_lazy_mib():.0f} MiB/s for all nodes together at first "
        "(AWS promises nothing)"
    )


def _lazy_mib() -> float:
    return lazy_bytes_per_s().value / MIB


def unpaid(saved_h: float, better: VolumeInit) -> str:
    """A sentence on the initial speed of a volume without a rate, and the time that a rate would save.

    better: with a rate; 0 seconds if the snapshot's content is unknown.
    """
    words = (
        f"data volumes load from S3 as they are read, at some {_lazy_mib():.0f} MiB/s at first (AWS promises nothing)"
    )
    if better.rate is not None and not better.seconds:
        return f"{words}, or at a rate that is paid for, where that is worth it; the snapshot was not looked up"
    if saved_h * 60 < 1:
        return words
    return f"{words}; --fill-volumes always saves {hours(saved_h)} for {usd(better.usd)} per node and start"
