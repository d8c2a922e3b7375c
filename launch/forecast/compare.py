"""Rank candidates by time and cost: as a table with a recommendation, and as JSON.  Pure."""

import json
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, floor, log10
from statistics import median
from typing import Any

from launch.core import catalog
from launch.core.catalog import SAGEMAKER_PREFIX, Instance
from launch.core.estimate.calibrate import Calibrated, Measured, calibrate
from launch.core.estimate.forecast import Forecast, at_first, forecast, hours, seconds
from launch.core.estimate.formulas import Figure, Layout, measured_rate
from launch.core.estimate.rates import data_set, rates_of, spot_share
from launch.core.estimate.training import PREPARED_BYTES, Images, Training, training
from launch.core.estimate.volume import NewVolume, data_volume, promise, rate_paid
from launch.core.price import usd
from launch.core.terminal import narrowed, table, without_empty
from launch.forecast.from_runs import nothing_from
from launch.forecast.options import ForecastOptions
from trainer.config import TrainConfig, batches_at, check_batches
from trainer.errors import SettingsError
from trainer.settings.checks import check

Row = Sequence[str]
WIDTH = 100  # without a terminal
COLUMNS = ("machines", "GPUs", "s/epoch", "s/epoch range", "images/s", "measured", "efficiency", "limited by", "basis",
           "job", "USD/epoch", "USD", "USD range", "spot")  # fmt: skip
WORDS = ("machines", "limited by", "basis")
# Columns that are dropped on a narrow terminal, in this order.
OPTIONAL = ("s/epoch range", "USD/epoch", "spot", "efficiency", "USD range", "basis", "images/s", "limited by")
MEANINGS = {
    "s/epoch": "with evaluation, once memory caches what fits.",
    "s/epoch range": "fastest and slowest within reason.",
    "measured": "images/s of --from-run on this very layout and batch.",
    "efficiency": "against as many GPUs that each work alone.",
    "basis": "where the rate of the bottleneck is from.",
    "USD": "on demand, us-east-1, without volumes.",
    "USD range": "fastest and slowest within reason.",
}


@dataclass(frozen=True)
class Candidate:
    """A number of nodes of a type, with their forecast.  name: as given, with or without ml.

    measured: median images/s of the same layout and batch in --from-run; None if it was not run.
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
    """Ranked candidates, the best first.  left_out: reasons for impossible ones; corrections: by --from-run."""

    config: TrainConfig
    options: ForecastOptions
    candidates: tuple[Candidate, ...]
    left_out: tuple[str, ...] = ()
    corrections: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def compare(config: TrainConfig, options: ForecastOptions, runs: Sequence[Measured]) -> Comparison:
    """Every type with every number of nodes.  Raises SettingsError if none is possible."""
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
    ranked = tuple(sorted(candidates, key=lambda candidate: _rank(candidate, options)))
    return Comparison(config, options, ranked, tuple(left_out), tuple(corrections), tuple(notes))


def _corrections(calibrated: Calibrated) -> list[str]:
    """The corrections by runs, and the runs that could not be used."""
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
    hourly = instance.sagemaker_usd_per_hour if name.startswith(SAGEMAKER_PREFIX) else instance.usd_per_hour
    assert hourly is not None
    guess = forecast(trained, instance, calibrated.rates)
    speeds = [run.images_per_s for run in calibrated.alike]
    measured = median(speeds) if speeds else None
    return Candidate(name, instance, trained.layout, nodes * hourly, guess, measured), calibrated


@dataclass(frozen=True)
class Offer:
    """A candidate for the recommendation.  usd: on demand, or of spot instances."""

    label: str
    hours: float
    usd: float


def as_text(comparison: Comparison, width: int | None = None) -> str:
    """The table, the best first, the recommendation and the notes.  width: of the terminal."""
    config, best = comparison.config, comparison.candidates[0]
    title = f"{config.model} on {config.dataset}, {config.epochs} epochs, batch {_batch(best)} on each"
    cells = [_cells(row) for row in comparison.candidates]
    columns, rows = fitting(COLUMNS, cells, OPTIONAL, width, with_spot=comparison.options.spot)
    notes = [*comparison.corrections, *(f"note: {note.rstrip('.')}." for note in comparison.notes)]
    notes += [f"left out: {reason}" for reason in comparison.left_out]
    paragraphs = [title, table(columns, rows, right=set(columns) - set(WORDS))]
    if comparison.options.ceilings:
        paragraphs.append("\n".join(["ceilings, images/s:", *map(_ceilings, comparison.candidates)]))
    paragraphs.append("\n".join(recommended(_offers(comparison))))
    if notes:
        paragraphs.append("\n".join(notes))
    return "\n\n".join([*paragraphs, legend(MEANINGS, columns, width)])


def fitting(
    columns: Sequence[str], rows: Sequence[Row], optional: Sequence[str], width: int | None, *, with_spot: bool
) -> tuple[Sequence[str], Sequence[Row]]:
    """The columns that have a value and fit, with their cells.  with_spot: the ranking needs that column."""
    optional = [name for name in optional if name != "spot" or not with_spot]
    return narrowed(*without_empty(columns, rows), optional, width or WIDTH)


def legend(meanings: Mapping[str, str], columns: Collection[str], width: int | None) -> str:
    """A legend of the shown columns.  meanings: of those that need one."""
    meanings = {**meanings, "spot": _spot_meaning()}
    words = " ".join(f"{name}: {meaning}" for name, meaning in meanings.items() if name in columns)
    return textwrap.fill(words, min(width or WIDTH, WIDTH))


def _ceilings(candidate: Candidate) -> str:
    return f"  {candidate.label}: {', '.join(map(str, candidate.forecast.ceilings))}"


def _batch(candidate: Candidate) -> str:
    step = candidate.forecast.step
    images = candidate.forecast.images_per_s * step.step_s / candidate.layout.replicas
    return f"{images:,.0f}"


def _cells(row: Candidate) -> tuple[str, ...]:
    guess = row.forecast
    return (
        row.label,
        str(row.layout.replicas) if row.instance.is_gpu else "-",
        seconds(guess.epoch_s),
        " - ".join(map(seconds, guess.epoch_range_s)),
        f"{guess.images_per_s:,.0f}",
        "" if row.measured is None else f"{row.measured:,.0f}",
        f"{guess.efficiency:.0%}",
        guess.limit,
        guess.source,
        hours(guess.hours),
        _small(guess.usd_per_epoch(row.usd_per_hour)),
        f"{row.usd:,.2f}",
        " - ".join(f"{bound:,.2f}" for bound in row.usd_range),
        f"{row.spot_usd.value:,.2f}",
    )


def _small(amount: float) -> str:
    """Three significant digits below 1: 0.464, 0.000229."""
    return f"{amount:,.{max(3, 2 - floor(log10(amount)))}f}" if amount > 0 else "0"


def _offers(comparison: Comparison) -> list[Offer]:
    spot = comparison.options.spot
    return [Offer(row.label, row.hours, row.spot_usd.value if spot else row.usd) for row in comparison.candidates]


def recommended(offers: Sequence[Offer]) -> list[str]:
    """The cheapest and the fastest of them."""
    cheapest = min(offers, key=lambda offer: offer.usd)
    fastest = min(offers, key=lambda offer: offer.hours)
    if cheapest is fastest:
        return [f"Cheapest and fastest: {_bill(cheapest)}."]
    return [
        f"Cheapest: {_bill(cheapest)}.",
        f"Fastest:  {_bill(fastest)}: {cheapest.hours / fastest.hours:.1f} times as fast for "
        f"{fastest.usd / cheapest.usd:.1f} times the price.",
    ]


def _bill(offer: Offer) -> str:
    return f"{offer.label}, {usd(offer.usd)} in {time(offer.hours)}"


def time(amount: float) -> str:
    """Hours in words; seconds below two minutes."""
    return hours(amount) if amount >= 1 / 30 else f"{seconds(amount * 3600)} s"


def _spot_meaning() -> str:
    share = spot_share()
    return f"{share.value:g} of the price on demand, an estimate ({share.best:g} to {share.worst:g})."


def as_json(comparison: Comparison) -> str:
    rows = [_row(row) for row in comparison.candidates]
    lists = {name: list(getattr(comparison, name)) for name in ("corrections", "notes", "left_out")}
    return json.dumps({"candidates": rows, **lists}, indent=2)


def _row(row: Candidate) -> dict[str, Any]:
    spot, forecast = row.spot_usd, asdict(row.forecast)
    volume_init = forecast.pop("volume_init")
    return {
        "instance_type": row.name,
        "nodes": row.layout.nodes,
        "replicas": row.layout.replicas,
        **forecast,
        "filling": volume_init,
        "measured_images_per_s": row.measured,
        "usd_per_hour": row.usd_per_hour,
        "usd_per_epoch": row.forecast.usd_per_epoch(row.usd_per_hour),
        "usd": row.usd,
        "usd_range": row.usd_range,
        "spot_usd": spot.value,
        "spot_usd_range": (spot.best, spot.worst),
        "spot_usd_source": spot.source,
    }
