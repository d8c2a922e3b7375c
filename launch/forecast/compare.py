"""The time and cost of each candidate, ranked.  Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import median

from launch.core import catalog
from launch.core.catalog import SAGEMAKER_PREFIX, Instance
from launch.core.estimate.calibrate import Calibrated, Measured, calibrate
from launch.core.estimate.figure import Figure, measured_rate
from launch.core.estimate.forecast import Forecast, forecast
from launch.core.estimate.formulas import Layout
from launch.core.estimate.rates import rates_of, spot_share
from launch.core.estimate.tables import data_set
from launch.core.estimate.training import PREPARED_BYTES, Images, Training, training
from launch.core.estimate.volume import NewVolume, rate_paid
from launch.core.estimate.words import at_first
from launch.core.volumes import data_volume, promise
from launch.forecast.options import ForecastOptions
from launch.forecast.words import nothing_from
from trainer.batches import batches_at, check_batches
from trainer.config import TrainConfig
from trainer.errors import SettingsError
from trainer.settings.checks import check


@dataclass(frozen=True)
class Candidate:
    """A number of nodes of a type, with their forecast.  name: as it was given, with ml. or without.

    measured: images/s of this very layout and batch in --from-run, the median; None where it was not run.
    """

    name: str
    instance: Instance
    layout: Layout
    usd_per_hour: float  # of all nodes, on demand
    forecast: Forecast
    measured: float | None = None

    @property
    def label(self) -> str:
        return f"{self.layout.nodes} x {self.name}"

    @property
    def hours(self) -> float:
        return self.forecast.hours

    @property
    def usd(self) -> float:
        return self.forecast.usd(self.usd_per_hour)

    @property
    def usd_range(self) -> tuple[float, float]:
        low, high = self.forecast.hours_range
        return low * self.usd_per_hour, high * self.usd_per_hour

    @property
    def spot_usd(self) -> Figure:
        """USD of the job at an estimated spot price; interruptions are not counted."""
        low, high = self.usd_range
        share = spot_share()
        return Figure(self.usd * share.value, low * share.best, high * share.worst, "estimated")


@dataclass(frozen=True)
class Comparison:
    """candidates: the best first; left_out: impossible ones, each with its reason; corrections: by --from-run."""

    config: TrainConfig
    options: ForecastOptions
    candidates: tuple[Candidate, ...]
    left_out: tuple[str, ...] = ()
    corrections: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def compare(config: TrainConfig, options: ForecastOptions, runs: Sequence[Measured]) -> Comparison:
    """Every type with every number of nodes.  Raises SettingsError where none of them is possible."""
    check(config)
    candidates, left_out = list[Candidate](), list[str]()
    corrections, notes = dict[str, None](), dict[str, None]()  # each once, in this order
    for name in dict.fromkeys(options.instance_type):
        instance = catalog.find(name)
        for nodes in dict.fromkeys(options.nodes):
            if why := _impossible(config, options, instance, nodes):
                left_out.append(f"{nodes} x {name}: {why}")
                continue
            candidate, calibrated = _candidate(config, options, runs, name, nodes)
            guess = candidate.forecast
            if not guess.fits:
                left_out.append(f"{nodes} x {name}: {guess.misfit}")
                continue
            candidates.append(candidate)
            corrections |= dict.fromkeys(f"{name}: {sentence}" for sentence in _corrections(calibrated))
            notes |= dict.fromkeys((*guess.notes, *([f"{name}: {guess.misfit}"] if guess.misfit else [])))
            if filling := at_first(guess):
                notes[f"{nodes} x {name}: {filling}"] = None
        if text := catalog.warning(instance):
            notes[text] = None
    if not candidates:
        raise SettingsError("\n".join(left_out))
    ranked = tuple(sorted(candidates, key=lambda candidate: _rank(candidate, options)))
    return Comparison(config, options, ranked, tuple(left_out), tuple(corrections), tuple(notes))


def _corrections(calibrated: Calibrated) -> list[str]:
    """What runs corrected, and which runs could not be used."""
    return [*calibrated.corrections, *nothing_from(calibrated.refused)]


def _rank(candidate: Candidate, options: ForecastOptions) -> tuple[float, float]:
    price = candidate.spot_usd.value if options.spot else candidate.usd
    hours = candidate.forecast.hours
    return (hours, price) if options.sort == "time" else (price, hours)


def _impossible(config: TrainConfig, options: ForecastOptions, instance: Instance, nodes: int) -> str | None:
    """Why there is no such candidate; None if there is."""
    gpus = options.gpus_per_node
    if config.strategy in ("single", "dp") and nodes > 1:
        return f"--strategy {config.strategy} is for one node."
    if gpus and instance.is_gpu and gpus > instance.gpus:
        return f"it has {instance.gpus} GPUs, not {gpus}."
    replicas = 1 if config.strategy == "single" else nodes * (gpus or max(1, instance.gpus))
    try:
        check_batches(config, replicas)
    except SettingsError as error:
        return str(error)
    return _too_few_images(config, options, replicas)


def _too_few_images(config: TrainConfig, options: ForecastOptions, replicas: int) -> str | None:
    """Why the data set has less than one update; None if it has enough, or its size is unknown."""
    images, most = _images(config, options), _most_per_update(config, replicas)
    if images is None or images >= most:
        return None
    return f"an update takes {most:,} images, and {config.dataset} has {images:,}; lower --batch-size."


def _images(config: TrainConfig, options: ForecastOptions) -> int | None:
    """The number of training images, or None."""
    if config.dataset == "synthetic":
        return config.synthetic_images
    known = data_set(config.dataset)
    return options.images or (known.train if known else None)


def _most_per_update(config: TrainConfig, replicas: int) -> int:
    """The largest global batch of the run."""
    starts = {0, *(config.batch_ramp or {})}
    return max(batches_at(config, epoch, replicas).per_update for epoch in starts)


def _own_images(config: TrainConfig, options: ForecastOptions) -> Images | None:
    """What differs from the table of data sets; None where nothing does."""
    count = options.images or (_images(config, options) if options.prepared else None)
    if count is None:
        return None
    size = PREPARED_BYTES if options.prepared else options.image_kb * 1e3
    return Images(count, size, is_small=options.prepared)


def _volume(trained: Training, options: ForecastOptions, instance: Instance, name: str) -> NewVolume | None:
    """The volume that launch.ec2 would give each node; SageMaker's are not made from a snapshot."""
    if not trained.kind.reads_ebs or name.startswith(SAGEMAKER_PREFIX):
        return None
    gib = trained.data.gib_in_all
    nodes, read = trained.layout.nodes, trained.read_gib
    hourly = instance.usd_per_hour * (spot_share().value if options.spot else 1.0)
    rate = rate_paid(options.fill_volumes, gib, nodes, hourly, read_gib=read)
    return NewVolume(rate, gib, promise(data_volume(instance, ceil(gib))))


def _candidate(
    config: TrainConfig, options: ForecastOptions, runs: Sequence[Measured], name: str, nodes: int
) -> tuple[Candidate, Calibrated]:
    instance = catalog.find(name)
    images = _own_images(config, options)
    trained = training(config, instance, nodes, gpus=options.gpus_per_node, on_ebs=options.ebs, images=images)
    trained = replace(trained, volume=_volume(trained, options, instance, name))
    rates = rates_of(instance, trained.cost, trained.kind)
    if options.decoded_per_vcpu and trained.kind.decodes:
        rates = replace(rates, decoded_per_s=measured_rate(options.decoded_per_vcpu * instance.vcpus, "measured"))
    calibrated = calibrate(rates, trained, instance, runs)
    hourly = instance.sagemaker_usd_per_hour if name.startswith(SAGEMAKER_PREFIX) else instance.usd_per_hour
    assert hourly is not None
    guess = forecast(trained, instance, calibrated.rates)
    speeds = [run.images_per_s for run in calibrated.alike]
    measured = median(speeds) if speeds else None
    return Candidate(name, instance, trained.layout, nodes * hourly, guess, measured), calibrated
