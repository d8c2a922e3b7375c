"""The forecast of a training: seconds, images/s, bottleneck and scaling.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from launch.core.catalog import Instance
from launch.core.estimate import memory
from launch.core.estimate.ceilings import Ceiling, Lift, ceilings
from launch.core.estimate.course import Course
from launch.core.estimate.figure import Figure, Source, figure
from launch.core.estimate.formulas import Layout, Limit, Step, step
from launch.core.estimate.rates import NEVER, Rates, rates_of
from launch.core.estimate.tables import table
from launch.core.estimate.training import Training
from launch.core.estimate.volume import Filling

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


@dataclass(frozen=True)
class Forecast:
    """epoch_s: of training and its share of evaluation, once the cache is warm; images_per_s: of training.

    epoch_range_s, hours_range: fastest and slowest, within reason.  hours: of the job, with boot_hours.
    ceilings: the lowest, which is the limit, first, and that of new volumes last; lift: what would lift the limit,
    where that is known.  filling: while new volumes are filled, which limits the first epoch alone, and is in hours.
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
    filling: Filling | None = None

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
    expected, best, worst = (Course(training, rates.at(side), side, caches) for side in ("value", "best", "worst"))
    usual = expected.step(epoch=0, uncached=0.0 if caches else 1.0)
    work = training.work()
    filling = expected.filling()
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
        _source(rates, usual.limit),
        usual,
        training.notes,
        memory.peak_gib(training),
        misfit,
        not is_sure,
        ceilings=ceilings(training, instance, rates, usual, filling),
        filling=filling,
    )


def _of_its_source(rates: Rates, training: Training) -> Rates:
    """The rates, of which reading ends at what the volume gives, or, from S3, at what the line does all the time."""
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
