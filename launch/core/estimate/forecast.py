"""The forecast of a training: seconds, images/s, what limits it, whether it fits, and what would help.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

from launch.core.catalog import Instance
from launch.core.estimate.formulas import Figure, Layout, Limit, Source, Step, figure, step
from launch.core.estimate.rates import NEVER, Rates, rates_of, table
from launch.core.estimate.training import PREPARED_BYTES, Timeline, Training
from launch.core.estimate.volume import MIB, Initialization, data_volume, promise

# Share of a machine's memory that is left to cache files.
CACHE_SHARE = 0.7
# The field of Rates behind each bottleneck.
LIMIT_RATES: Mapping[Limit, str] = {
    "compute": "image_s",
    "kernel launches": "pass_s",
    "JPEG decoding": "decoded_per_s",
    "EBS": "read_per_s",
    "S3": "read_per_s",
    "the interconnect": "inner_per_s",
    "the network": "outer_per_s",
}
# Smaller gains are not mentioned.
WORTH_SAYING = 1.05
# Bytes of the optimizer's state for each weight, in 32 bits.
STATE_BYTES = {"sgd": 4, "lars": 4, "muon": 4, "adamw": 8}
# Bytes of a weight and its gradient; of autocast's 16-bit copy; of an average of weights.
WEIGHT_BYTES, HALF_COPY_BYTES, AVERAGE_BYTES = 8, 2, 4
GIB = 2**30
# Smaller gains are within the range of the forecast.
WORTH_IT = 1.1


@dataclass(frozen=True)
class Ceiling:
    """The images/s that one bottleneck allows."""

    name: str  # a Limit, or "volume initialization"
    images_per_s: float
    note: str = ""
    lasts: bool = True  # False for volume initialization, which ends when the volumes are initialized

    def __str__(self) -> str:
        return f"{self.name} {self.images_per_s:,.0f}" + (f" ({self.note})" if self.note else "")


@dataclass(frozen=True)
class Lift:
    """A change that would lift the limit."""

    how: str  # an imperative
    images_per_s: float  # with it
    epoch_s: float  # with it


@dataclass(frozen=True)
class Forecast:
    """Time, speed and memory of a training, and what limits it."""

    images_per_s: float  # of training
    epoch_s: float  # of training and its share of evaluation, with a warm cache
    epoch_range_s: tuple[float, float]  # fastest and slowest, within reason
    evaluation_s: float
    hours: float  # of the job, including boot_hours
    hours_range: tuple[float, float]  # fastest and slowest, within reason
    efficiency: float  # images/s over those of as many GPUs that each work alone
    limit: Limit
    source: Source  # of the rate behind the limit
    step: Step
    notes: tuple[str, ...] = ()
    memory_gib: Figure = NEVER  # peak of one replica
    misfit: str = ""  # a sentence if the GPU may have less; else empty
    fits: bool = True  # False if the GPU surely has less
    ceilings: tuple[Ceiling, ...] = ()  # the lowest first, which is the limit; volume initialization last
    lift: Lift | None = None  # what would lift the limit, if known
    volume_init: Initialization | None = None  # limits the first epoch only, and is included in hours

    def usd(self, usd_per_hour: float) -> float:
        """USD of the whole job."""
        return self.hours * usd_per_hour

    def usd_per_epoch(self, usd_per_hour: float) -> float:
        return self.epoch_s / 3600 * usd_per_hour


def forecast(training: Training, instance: Instance, rates: Rates | None = None) -> Forecast:
    """The forecast.  rates: measured ones; None: those of the tables.

    Raises SettingsError for a global batch that does not divide.
    """
    rates = _of_its_source(rates or rates_of(instance, training.cost, training.kind), training)
    caches = training.data.gib < CACHE_SHARE * instance.memory_gib
    boot = figure(table("rates")["boot_hours"])
    expected, best, worst = (Timeline(training, rates.at(side), side, caches) for side in ("value", "best", "worst"))
    usual = expected.step(epoch=0, uncached=0.0 if caches else 1.0)
    work = training.work()
    volume_init = expected.volume_init()
    why, is_sure = misfit(training, instance)
    alone = step(replace(work, strategy="single"), rates.at("value"), Layout(), uncached=0.0 if caches else 1.0)
    return Forecast(
        work.batch * work.accumulate * training.layout.replicas / usual.step_s,
        expected.epoch_s(),
        (best.epoch_s(), worst.epoch_s()),
        expected.evaluation_s(),
        boot.value + expected.job_s() / 3600,
        (boot.best + best.job_s() / 3600, boot.worst + worst.job_s() / 3600),
        min(1.0, alone.step_s / usual.step_s),
        usual.limit,
        _source(rates, usual.limit),
        usual,
        training.notes,
        peak_gib(training),
        why,
        not is_sure,
        ceilings=ceilings(training, instance, rates, usual, volume_init),
        volume_init=volume_init,
    )


def _of_its_source(rates: Rates, training: Training) -> Rates:
    """The rates, with reading limited by the volume, or from S3 by the sustained rate of the network."""
    image_bytes = training.data.image_bytes
    if training.config.data_url:
        return replace(rates, read_per_s=rates.lasting_per_s)
    promise = training.volume.promise if training.volume else None
    if promise is None or not image_bytes:
        return rates
    most = promise.bytes_per_s(image_bytes, training.layout.nodes)
    return replace(rates, read_per_s=rates.read_per_s.at_most(most))


def _source(rates: Rates, limit: Limit) -> Source:
    rate: Figure = getattr(rates, LIMIT_RATES[limit])
    return rate.source


def ceilings(
    training: Training, instance: Instance, rates: Rates, usual: Step, volume_init: Initialization | None = None
) -> tuple[Ceiling, ...]:
    """The ceilings, the lowest first, which is the limit; volume initialization last.  usual: an update."""
    work = training.work()
    images = work.batch * work.accumulate * training.layout.replicas
    lasting = [
        Ceiling(name, images / takes_s, _note(name, training, instance, rates, usual, images))
        for name, takes_s in usual.takes.items()
        if takes_s
    ]
    return (*sorted(lasting, key=lambda one: one.images_per_s), *_at_first(volume_init))


def _note(name: Limit, training: Training, instance: Instance, rates: Rates, usual: Step, images: int) -> str:
    """A note on what a ceiling depends on."""
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
    """Which limit of the volume that is, in words; empty if the node's own limit is lower."""
    promise, image_bytes = training.volume.promise if training.volume else None, training.data.image_bytes
    if promise is None or promise.bytes_per_s(image_bytes, training.layout.nodes) > bytes_per_s:
        return ""
    scope = "of the volume that all read" if promise.is_shared else "of a volume"
    if promise.limits_operations(image_bytes):
        return f"{promise.operations_per_s:,.0f} operations/s {scope}"
    return f"{promise.mib_per_s:,.0f} MiB/s {scope}"


def _at_first(volume_init: Initialization | None) -> list[Ceiling]:
    """The ceiling of new volumes until they are initialized."""
    if volume_init is None:
        return []
    rate, per_s = volume_init.volume.mib_per_s, volume_init.volume.bytes_per_s
    basis = f"{per_s.value / MIB:.0f} MiB/s, {'paid for' if rate else per_s.source}"
    minutes = max(1, round(volume_init.full_s / 60))
    full = f"the first {minutes:,} min" if volume_init.full_s else "full before it begins"
    return [Ceiling("volume initialization", volume_init.images_per_s, f"{full}; {basis}", lasts=False)]


def peak_gib(training: Training) -> Figure:
    """The peak of one replica, in GiB: what torch allocates, without the driver's own.

    In the backward pass, the largest activation, its gradient and the next one's exist at the same time.
    """
    total = _fixed_bytes(training) + _most_images(training) * _image_bytes(training)
    return figure(table("rates")["memory"]).times(total / GIB)


def _image_bytes(training: Training) -> float:
    """Bytes of the activations of one image."""
    activations = training.cost.kept + 2 * training.cost.largest
    return activations * 1e6 * (2 if training.kind.half else 4)


def _most_images(training: Training) -> int:
    """Images of one replica and pass; with a batch ramp, of its largest batch."""
    return max(training.work(epoch).batch for epoch in (0, *(training.config.batch_ramp or {})))


def _fixed_bytes(training: Training) -> float:
    """Bytes of weights, gradients and optimizer state; fsdp divides all but the 16-bit copy among the replicas."""
    config = training.config
    each = WEIGHT_BYTES + STATE_BYTES.get(config.optimizer, max(STATE_BYTES.values()))
    each += AVERAGE_BYTES if config.ema_decay else 0
    share = 1 / training.layout.replicas if config.strategy == "fsdp" else 1.0
    copy = HALF_COPY_BYTES if training.kind.half else 0
    return training.cost.parameters * (each * share + copy)


def misfit(training: Training, instance: Instance) -> tuple[str, bool]:
    """A sentence if the training may not fit into the GPU, else empty; and whether it surely does not."""
    if not instance.is_gpu or not instance.gpu_memory_gib:
        return "", False
    needs = peak_gib(training)
    context = figure(table("rates")["gpu_context_gib"])
    room = Figure(instance.gpu_memory_gib - context.value, instance.gpu_memory_gib - context.best,
                  instance.gpu_memory_gib - context.worst, context.source)  # fmt: skip
    if needs.worst <= room.worst:
        return "", False
    batch = _most_images(training)
    whole, is_sure = f"{instance.gpu_memory_gib:.3g} GiB of its {instance.gpu_model}", needs.best > room.best
    claim = "does not fit" if is_sure else "may not fit"
    return (
        f"a batch of {batch:,} {claim} into the {whole}: about {needs.value:,.3g} GiB ({needs.best:,.3g} to "
        f"{needs.worst:,.3g}); {_remedy(training, batch, room)}."
    ), is_sure


def _remedy(training: Training, batch: int, room: Figure) -> str:
    """The settings with which the same update fits."""
    bytes_free = room.worst * GIB / figure(table("rates")["memory"]).worst - _fixed_bytes(training)
    most = int(bytes_free / _image_bytes(training))
    if most < 1:
        return "no batch does; choose GPUs with more memory, a smaller model, or --strategy fsdp on more GPUs"
    most = most // 8 * 8 or most
    passes = training.config.accumulate * -(-batch // most)
    is_global = training.config.global_batch_size or training.config.batch_ramp
    return f"give {'' if is_global else f'--batch-size {most} '}--accumulate {passes}"


def lifted(training: Training, instance: Instance) -> Forecast:
    """The forecast, with what would lift its limit.  Raises SettingsError as forecast() does."""
    guess = forecast(training, instance)
    for how, other in _changes(training, instance, guess):
        better = forecast(other, instance)
        if better.images_per_s > WORTH_IT * guess.images_per_s:
            return replace(guess, lift=Lift(how, better.images_per_s, better.epoch_s))
    return guess


def _changes(training: Training, instance: Instance, guess: Forecast) -> list[tuple[str, Training]]:
    """Possible changes in words, each with the changed training."""
    data, config, volume = training.data, training.config, training.volume
    ways = list[tuple[str, Training]]()
    if guess.limit in ("EBS", "JPEG decoding") and not data.is_small and data.image_bytes > PREPARED_BYTES:
        small = replace(data, image_bytes=PREPARED_BYTES, is_small=True)
        prepared = replace(training, data=small, kind=replace(training.kind, is_small=True))
        ways.append(("prepare the data (launch.data publish)", prepared))
    if guess.limit == "EBS" and volume is not None and volume.is_shared:
        own = replace(volume, promise=promise(data_volume(instance, ceil(volume.data_gib))))
        ways.append(("a volume for each node (--data-volume per-node)", replace(training, volume=own)))
    if guess.step.exposed_s and config.comm_hook == "none" and training.work().strategy == "ddp":
        halved = config.model_copy(update={"comm_hook": "bf16"})
        ways.append(("send gradients in 16 bits (--comm-hook bf16)", replace(training, config=halved)))
    return ways


# Share of a job.
LEAST_SHARE = 0.1


def speed(guess: Forecast) -> str:
    """663 s per epoch (500 to 900), 1,932 images/s, limited by EBS (published rate); and by new volumes at first."""
    low, high = (seconds(bound) for bound in guess.epoch_range_s)
    more = f"; {limit}" if (limit := at_first(guess)) else ""
    return (
        f"{seconds(guess.epoch_s)} s per epoch ({low} to {high}), {guess.images_per_s:,.0f} images/s, "
        f"limited by {guess.limit} ({guess.source} rate){more}"
    )


def at_first(guess: Forecast) -> str:
    """The time that volume initialization adds to the job; empty if it is a small part of it."""
    volume_init = guess.volume_init
    if volume_init is None or volume_init.lost_s < LEAST_SHARE * guess.hours * 3600:
        return ""
    source = volume_init.volume.bytes_per_s.source
    return (
        f"at first limited by volume initialization ({source} rate), {volume_init.images_per_s:,.0f} images/s, which "
        f"takes {hours(volume_init.lost_s / 3600)} more"
    )


def hours(amount: float) -> str:
    """0.25 -> '15 min', 3 -> '3.0 h'."""
    return f"{amount * 60:.0f} min" if amount < 1 else f"{amount:,.1f} h"


def seconds(amount: float) -> str:
    """Three digits, at least: 0.123, 4.56, 1,234."""
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"
