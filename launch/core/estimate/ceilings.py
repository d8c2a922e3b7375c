"""What each part of a machine allows, in images/s of the whole job, and what would lift the lowest.  Pure."""

from dataclasses import dataclass
from math import inf, isfinite

from launch.core.catalog import Instance
from launch.core.estimate.formulas import Speeds, Step, ring_s
from launch.core.estimate.rates import Rates
from launch.core.estimate.training import Training
from launch.core.estimate.volume import MIB, Filling


@dataclass(frozen=True)
class Ceiling:
    """name: as in Limit, or another part's; note: when it is another one.  counts: whether it ever limits."""

    name: str
    images_per_s: float
    note: str = ""
    counts: bool = True

    def __str__(self) -> str:
        return f"{self.name} {self.images_per_s:,.0f}" + (f" ({self.note})" if self.note else "")


@dataclass(frozen=True)
class Lift:
    """What would lift the limit.  how: to do what; images_per_s, epoch_s: with it."""

    how: str
    images_per_s: float
    epoch_s: float


def ceilings(
    training: Training, instance: Instance, rates: Rates, usual: Step, uncached: float, filling: Filling | None = None
) -> tuple[Ceiling, ...]:
    """The lowest first, of those that count.  usual: an update; uncached: share of images that come from the disk."""
    found = [
        Ceiling(_processor(instance), _images(training) / usual.compute_s),
        _gradients(training, rates.at("value"), usual),
        _decoding(training, instance, rates),
        _disk(training, rates, uncached),
        _volume(filling),
    ]
    known = [one for one in found if one is not None and isfinite(one.images_per_s)]
    return tuple(sorted(known, key=lambda one: (not one.counts, one.images_per_s)))


def _images(training: Training) -> float:
    """Of an update."""
    work = training.work()
    return work.batch * work.accumulate * training.layout.replicas


def _processor(instance: Instance) -> str:
    return "GPU" if instance.is_gpu else "CPU"


def _gradients(training: Training, speeds: Speeds, usual: Step) -> Ceiling | None:
    """What the exchange of gradients leaves: it lasts as long as the line allows, or is not hidden behind computing."""
    layout = training.layout
    if layout.replicas == 1:
        return None
    lasting_s = 0.0
    if layout.nodes > 1:
        lasting_s = ring_s(layout.replicas, training.work().wire_bytes, speeds.lasting_per_s)
    longest_s = max(lasting_s, usual.compute_s + usual.exposed_s)
    return Ceiling("the network", _images(training) / longest_s if longest_s else inf)


def _decoding(training: Training, instance: Instance, rates: Rates) -> Ceiling | None:
    if not training.kind.decodes:
        return None
    per_s = rates.decoded_per_s.value * training.layout.nodes
    return Ceiling("JPEG decoding", per_s, f"{instance.vcpus} vCPUs a node")


def _disk(training: Training, rates: Rates, uncached: float) -> Ceiling | None:
    work = training.work()
    size = work.image_bytes * uncached
    if not size or not isfinite(rates.read_per_s.value):
        return None
    nodes, read = training.layout.nodes, rates.read_per_s
    if work.reads_from == "S3":
        return Ceiling("S3", read.value / size * nodes, "by the line that gradients take, too" if nodes > 1 else "")
    burst = read.best / size * nodes
    if burst > 1.05 * read.value / size * nodes:
        note = f"{burst:,.0f} for half an hour a day"
    else:
        note = _of_volume(training, read.value)
    return Ceiling("EBS", read.value / size * nodes, note)


def _of_volume(training: Training, bytes_per_s: float) -> str:
    """Which limit of the volume that is, in words; empty where it is the node's."""
    promise, image_bytes = training.volume.promise if training.volume else None, training.data.image_bytes
    if promise is None or promise.bytes_per_s(image_bytes, training.layout.nodes) > bytes_per_s:
        return ""
    whose = "of the volume that all read" if promise.is_shared else "of a volume"
    if promise.limits_operations(image_bytes):
        return f"{promise.operations_per_s:,.0f} operations/s {whose}"
    return f"{promise.mib_per_s:,.0f} MiB/s {whose}"


def _volume(filling: Filling | None) -> Ceiling | None:
    """What a new volume gives until it is full."""
    if filling is None:
        return None
    rate, per_s = filling.volume.mib_per_s, filling.volume.bytes_per_s
    basis = f"{per_s.value / MIB:.0f} MiB/s, {'paid for' if rate else per_s.source}"
    full = f"the first {max(1, round(filling.full_s / 60)):,} min" if filling.full_s else "full before it begins"
    note = f"{full}; {basis}"
    return Ceiling("volume initialization", filling.images_per_s, note, counts=filling.full_s > 0)
