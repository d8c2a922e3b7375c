"""Compare machines for the built-in trainer, by the forecast.  Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, floor, log10
from statistics import median
from typing import Any

from launch.core import catalog
from launch.core.catalog import SAGEMAKER_PREFIX, Instance
from launch.core.estimate.calibrate import Calibrated, Measured, calibrate
from launch.core.estimate.forecast import Forecast, at_first, forecast, hours, seconds
from launch.core.estimate.formulas import measured_rate
from launch.core.estimate.rates import data_set, rates_of, spot_share
from launch.core.estimate.training import PREPARED_BYTES, Images, Training, training
from launch.core.estimate.volume import NewVolume, data_volume, promise, rate_paid
from launch.forecast.from_runs import nothing_from
from launch.forecast.offers import Comparison, Offer, ranked, recommended, usd_per_hour
from launch.forecast.options import ForecastOptions
from trainer.config import TrainConfig, batches_at, check_batches
from trainer.errors import SettingsError
from trainer.settings.checks import check

MEANINGS = {
    "s/epoch": "with evaluation, once memory caches what fits.",
    "s/epoch range": "fastest and slowest within reason.",
    "measured": "images/s of --from-run on this very layout and batch.",
    "efficiency": "against as many GPUs that each work alone.",
    "basis": "where the rate of the bottleneck is from.",
    "USD": "on demand, us-east-1, without volumes.",
    "USD range": "fastest and slowest within reason.",
}


@dataclass(frozen=True, kw_only=True)
class Candidate(Offer):
    """An offer for the built-in trainer."""

    forecast: Forecast
    usd_per_epoch: float
    is_gpu: bool
    measured: float | None = None  # median images/s of the same layout and batch in --from-run, if it was run

    @property
    def cells(self) -> dict[str, str]:
        guess = self.forecast
        return {
            "machines": self.label,
            "GPUs": str(self.layout.replicas) if self.is_gpu else "-",
            "s/epoch": seconds(guess.epoch_s),
            "s/epoch range": " - ".join(map(seconds, guess.epoch_range_s)),
            "images/s": f"{guess.images_per_s:,.0f}",
            "measured": "" if self.measured is None else f"{self.measured:,.0f}",
            "efficiency": f"{guess.efficiency:.0%}",
            "limited by": guess.limit,
            "basis": guess.source,
            "job": hours(guess.hours),
            "USD/epoch": _small(self.usd_per_epoch),
            **self.usd_cells,
        }

    @property
    def figures(self) -> dict[str, Any]:
        figures = asdict(self.forecast)
        more = {"filling": figures.pop("volume_init"), "measured_images_per_s": self.measured}
        return {**figures, **more, "usd_per_epoch": self.usd_per_epoch}


def compare(config: TrainConfig, options: ForecastOptions, runs: Sequence[Measured]) -> Comparison:
    """Compare every type with every number of nodes.  Raises SettingsError if none is possible."""
    check(config)
    candidates, left_out = list[Candidate](), list[str]()
    corrections, notes = dict[str, None](), dict[str, None]()  # ordered sets
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
            if limit := at_first(guess):
                notes[f"{nodes} x {name}: {limit}"] = None
        if text := catalog.warning(instance):
            notes[text] = None
    if not candidates:
        raise SettingsError("\n".join(left_out))
    return _comparison(config, options, candidates, list(corrections), list(notes), left_out)


def _comparison(
    config: TrainConfig, options: ForecastOptions, candidates: Sequence[Candidate], corrections: Sequence[str],
    notes: Sequence[str], left_out: Sequence[str],
) -> Comparison:  # fmt: skip
    offers = ranked(candidates, options.sort)
    ceilings = [f"  {one.label}: {', '.join(map(str, one.forecast.ceilings))}" for one in offers]
    return Comparison(
        title=f"{config.model} on {config.dataset}, {config.epochs} epochs, batch {_batch(offers[0])} on each",
        offers=offers,
        meanings=MEANINGS,
        is_spot=options.spot,
        recommendation=recommended(offers, is_spot=options.spot),
        more=["ceilings, images/s:", *ceilings] if options.ceilings else [],
        notes={"corrections": corrections, "notes": notes, "left_out": left_out},
    )


def _corrections(calibrated: Calibrated) -> list[str]:
    """Sentences on the corrections from runs, and on the runs that could not be used."""
    return [*calibrated.corrections, *nothing_from(calibrated.refused)]


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
    """The user's own data set, if it differs from the table of data sets."""
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
    hourly = usd_per_hour(name, instance)
    assert hourly is not None
    guess = forecast(trained, instance, calibrated.rates)
    speeds = [run.images_per_s for run in calibrated.alike]
    candidate = Candidate(
        name=name,
        layout=trained.layout,
        hours=guess.hours,
        hours_range=guess.hours_range,
        usd_per_hour=nodes * hourly,
        forecast=guess,
        usd_per_epoch=guess.usd_per_epoch(nodes * hourly),
        is_gpu=instance.is_gpu,
        measured=median(speeds) if speeds else None,
    )
    return candidate, calibrated


def _batch(candidate: Candidate) -> str:
    step = candidate.forecast.step
    images = candidate.forecast.images_per_s * step.step_s / candidate.layout.replicas
    return f"{images:,.0f}"


def _small(amount: float) -> str:
    """Three significant digits below 1: 0.464, 0.000229."""
    return f"{amount:,.{max(3, 2 - floor(log10(amount)))}f}" if amount > 0 else "0"
