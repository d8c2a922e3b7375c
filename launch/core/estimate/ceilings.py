"""What each part of a machine allows, in images/s of the whole job, and what would lift the lowest.  Pure."""

from dataclasses import dataclass

from launch.core.catalog import Instance
from launch.core.estimate.formulas import Limit, Step
from launch.core.estimate.rates import Rates
from launch.core.estimate.training import Training
from launch.core.estimate.volume import MIB, Filling

# Less need not be said.
WORTH_SAYING = 1.05


@dataclass(frozen=True)
class Ceiling:
    """name: a Limit, or "volume initialization", which does not last: it ends when the volumes are full."""

    name: str
    images_per_s: float
    note: str = ""
    lasts: bool = True

    def __str__(self) -> str:
        return f"{self.name} {self.images_per_s:,.0f}" + (f" ({self.note})" if self.note else "")


@dataclass(frozen=True)
class Lift:
    """What would lift the limit.  how: to do what; images_per_s, epoch_s: with it."""

    how: str
    images_per_s: float
    epoch_s: float


def ceilings(
    training: Training, instance: Instance, rates: Rates, usual: Step, filling: Filling | None = None
) -> tuple[Ceiling, ...]:
    """The lowest, which is the limit, first; and last what new volumes give at first.  usual: an update."""
    work = training.work()
    images = work.batch * work.accumulate * training.layout.replicas
    lasting = [
        Ceiling(name, images / takes_s, _note(name, training, instance, rates, usual, images))
        for name, takes_s in usual.takes.items()
        if takes_s
    ]
    return (*sorted(lasting, key=lambda one: one.images_per_s), *_at_first(filling))


def _note(name: Limit, training: Training, instance: Instance, rates: Rates, usual: Step, images: int) -> str:
    """What the number alone does not say."""
    if name == "JPEG decoding":
        return f"{instance.vcpus} vCPUs a node"
    if name == "S3":
        return "by the line that gradients take, too" if training.layout.nodes > 1 else ""
    if name == "EBS":
        return _of_disk(training, rates, images / usual.takes[name])
    if name in ("compute", "kernel launches") and usual.takes[name] > WORTH_SAYING * usual.compute_s:
        return f"{images / usual.compute_s:,.0f} without waiting for gradients"
    return ""


def _of_disk(training: Training, rates: Rates, images_per_s: float) -> str:
    read = rates.read_per_s
    burst = images_per_s * read.best / read.value
    if burst > WORTH_SAYING * images_per_s:
        return f"{burst:,.0f} for half an hour a day"
    return _of_volume(training, read.value)


def _of_volume(training: Training, bytes_per_s: float) -> str:
    """Which limit of the volume that is, in words; empty where it is the node's."""
    promise, image_bytes = training.volume.promise if training.volume else None, training.data.image_bytes
    if promise is None or promise.bytes_per_s(image_bytes, training.layout.nodes) > bytes_per_s:
        return ""
    whose = "of the volume that all read" if promise.is_shared else "of a volume"
    if promise.limits_operations(image_bytes):
        return f"{promise.operations_per_s:,.0f} operations/s {whose}"
    return f"{promise.mib_per_s:,.0f} MiB/s {whose}"


def _at_first(filling: Filling | None) -> list[Ceiling]:
    """What new volumes give until they are full."""
    if filling is None:
        return []
    rate, per_s = filling.volume.mib_per_s, filling.volume.bytes_per_s
    basis = f"{per_s.value / MIB:.0f} MiB/s, {'paid for' if rate else per_s.source}"
    full = f"the first {max(1, round(filling.full_s / 60)):,} min" if filling.full_s else "full before it begins"
    return [Ceiling("volume initialization", filling.images_per_s, f"{full}; {basis}", lasts=False)]
