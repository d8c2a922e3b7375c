"""The forecast of a training: seconds, images/s, bottleneck and scaling.  Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, inf

from launch.core.catalog import Instance
from launch.core.estimate import memory
from launch.core.estimate.ceilings import Ceiling, Lift, ceilings
from launch.core.estimate.figure import Figure, Side, Source, figure
from launch.core.estimate.formulas import FORWARD, Layout, Limit, Speeds, Step, step
from launch.core.estimate.rates import NEVER, Rates, rates_of
from launch.core.estimate.tables import DataSet, table
from launch.core.estimate.training import Training

# Share of a machine's memory that is left to cache files.
CACHE_SHARE = 0.7
# The fields of Rates behind each bottleneck.
LIMIT_RATES: Mapping[Limit, tuple[str, ...]] = {
    "compute": ("image_s",),
    "kernel launches": ("pass_s",),
    "JPEG decoding": ("decoded_per_s",),
    "EBS": ("read_per_s",),
    "the network": ("outer_per_s", "inner_per_s"),
}


@dataclass(frozen=True)
class Forecast:
    """epoch_s: of training and its share of evaluation, once the cache is warm; images_per_s: of training.

    epoch_range_s, hours_range: fastest and slowest, within reason.  hours: of the job, with boot_hours.
    ceilings: the lowest first; lift: what would lift it, where that is known.
    efficiency: images/s over those of as many GPUs that each work alone.  source: of the rate behind the limit.
    memory_gib: peak of one replica; misfit: a sentence where the GPU may have less; fits: False where it surely has.
    """

    images_per_s: float
    epoch_s: float
    epoch_range_s: tuple[float, float]
    evaluation_s: float
    hours: float
    hours_range: tuple[float, float]
    efficiency: float
    limit: Limit
    source: Source
    step: Step
    notes: tuple[str, ...] = ()
    memory_gib: Figure = NEVER
    misfit: str = ""
    fits: bool = True
    ceilings: tuple[Ceiling, ...] = ()
    lift: Lift | None = None

    def usd(self, usd_per_hour: float) -> float:
        """USD of the whole job."""
        return self.hours * usd_per_hour

    def usd_per_epoch(self, usd_per_hour: float) -> float:
        return self.epoch_s / 3600 * usd_per_hour


def forecast(training: Training, instance: Instance, rates: Rates | None = None) -> Forecast:
    """The forecast.  rates: measured ones; None: those of the tables.

    Raises SettingsError for a global batch that does not divide.
    """
    rates = rates or rates_of(instance, training.cost, training.kind)
    caches = training.data.gib < CACHE_SHARE * instance.memory_gib
    boot = figure(table("rates")["boot_hours"])
    expected, best, worst = (_Course(training, rates.at(side), side, caches) for side in ("value", "best", "worst"))
    usual = expected.step(epoch=0, uncached=0.0 if caches else 1.0)
    work = training.work()
    misfit, is_sure = memory.misfit(training, instance)
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
        _source(rates, usual.limit, training.layout),
        usual,
        training.notes,
        memory.peak_gib(training),
        misfit,
        not is_sure,
        ceilings=ceilings(training, instance, rates, usual, 0.0 if caches else 1.0),
    )


def _source(rates: Rates, limit: Limit, layout: Layout) -> Source:
    names = LIMIT_RATES[limit]
    name = names[-1] if limit == "the network" and layout.nodes == 1 else names[0]
    rate: Figure = getattr(rates, name)
    return rate.source


def evaluation_s(data: DataSet, speeds: Speeds, layout: Layout) -> float:
    """Seconds to evaluate each image once, divided among the replicas: forward only."""
    share = data.evaluation / layout.nodes
    image_bytes = data.image_bytes if data.format == "jpeg" else 0.0
    computed_s = share / layout.gpus * speeds.image_s * FORWARD
    return max(computed_s, share / speeds.decoded_per_s, share * image_bytes / speeds.read_per_s)


@dataclass(frozen=True)
class _Course:
    """A job from its first epoch to its last, at one side of the figures."""

    training: Training
    speeds: Speeds
    side: Side
    caches: bool

    def step(self, epoch: int, uncached: float) -> Step:
        work = self.training.work(epoch)
        return step(work, self.speeds, self.training.layout, uncached=uncached, side=self.side)

    def paced(self, epoch: int, uncached: float) -> float:
        """Seconds of an update of that epoch: the model's, not the disk's, become fewer with an image's pixels.

        Decoding is taken to last as long, although smaller crops often decode at half the size.
        """
        smaller = replace(self.speeds, image_s=self.speeds.image_s * self.training.share_of_pixels(epoch))
        work = self.training.work(epoch)
        return step(work, smaller, self.training.layout, uncached=uncached, side=self.side).step_s

    def training_s(self, epoch: int, uncached: float) -> float:
        return self.training.updates(epoch) * self.step(epoch, uncached).step_s

    def evaluation_s(self) -> float:
        data = replace(self.training.data, image_bytes=0.0) if self.caches else self.training.data
        return evaluation_s(data, self.speeds, self.training.layout)

    def epoch_s(self) -> float:
        """Training and its share of evaluation at the first batch, once memory caches what fits."""
        return self.training_s(0, 0.0 if self.caches else 1.0) + self.training.evaluating * self.evaluation_s()

    def job_s(self) -> float:
        """All epochs, or the updates of --max-steps."""
        config, total = self.training.config, 0.0
        left = inf if config.max_steps is None else float(config.max_steps)
        for begin, end in pairwise([*self._begins(), config.epochs]):
            updates = self.training.updates(begin)
            for epochs, step_s in self._paces(begin, end):
                done = min(left, epochs * updates)
                evaluations = min(epochs, ceil(done / updates)) * self.training.evaluating
                total += done * step_s + evaluations * self.evaluation_s()
                left -= done
        return total

    def _begins(self) -> list[int]:
        """The epochs with which another global batch or another image size begins, the first of them 0."""
        config, share = self.training.config, self.training.share_of_pixels
        ramp = {epoch for epoch in config.batch_ramp or {} if 0 < epoch < config.epochs}
        grown = range(1, config.epochs if self.training.grows else 1)
        return [0, *sorted(ramp | {epoch for epoch in grown if share(epoch) != share(epoch - 1)})]

    def _paces(self, begin: int, end: int) -> Iterator[tuple[int, float]]:
        """How many of the epochs from `begin` to before `end`, of one batch and size, have updates of so many seconds.

        One by one while disks are slower than all else, for the memory's caches then fill from epoch to epoch; all
        that remain at once.
        """
        settled_s = self.paced(begin, 0.0 if self.caches else 1.0)
        while begin < end and (step_s := self.paced(begin, self.uncached(begin))) > settled_s:
            yield 1, step_s
            begin += 1
        if begin < end:
            yield end - begin, settled_s

    def uncached(self, epoch: int) -> float:
        """Share of an epoch's images that this node has not read yet: it gets different ones every epoch."""
        if not self.caches:
            return 1.0
        return float((1 - 1 / self.training.layout.nodes) ** epoch)
