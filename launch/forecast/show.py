"""A comparison as a table and a recommendation, and as JSON; the published cases likewise.  Pure."""

import json
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from math import floor, log10
from typing import Any

from launch.core.estimate.rates import spot_share
from launch.core.estimate.words import hours, seconds
from launch.core.price import usd
from launch.core.tables import narrowed, table, without_empty
from launch.forecast.compare import Candidate, Comparison
from launch.forecast.published import Case

WIDTH = 100  # without a terminal
COLUMNS = ("machines", "GPUs", "s/epoch", "s/epoch range", "images/s", "measured", "efficiency", "limited by", "basis",
           "job", "USD/epoch", "USD", "USD range", "spot")  # fmt: skip
WORDS = ("machines", "limited by", "basis")
# Left out on a narrow terminal, the first of them first.
OPTIONAL = ("s/epoch range", "USD/epoch", "spot", "efficiency", "USD range", "basis", "images/s", "limited by")


@dataclass(frozen=True)
class Offer:
    """What is recommended: usd on demand, or of spot instances."""

    label: str
    hours: float
    usd: float


def as_text(comparison: Comparison, width: int | None = None) -> str:
    """The table, the best first, the recommendation and the notes.  width: of the terminal."""
    config, best = comparison.config, comparison.candidates[0]
    title = f"{config.model} on {config.dataset}, {config.epochs} epochs, batch {_batch(best)} on each"
    optional = list(OPTIONAL)
    if comparison.options.spot:  # the ranking rests on it
        optional.remove("spot")
    known = without_empty(COLUMNS, [_cells(row) for row in comparison.candidates])
    columns, rows = narrowed(*known, optional, width or WIDTH)
    notes = [*comparison.corrections, *(f"note: {note.rstrip('.')}." for note in comparison.notes)]
    notes += [f"left out: {reason}" for reason in comparison.left_out]
    paragraphs = [title, table(columns, rows, right=set(columns) - set(WORDS))]
    if comparison.options.ceilings:
        paragraphs.append("\n".join(["ceilings, images/s:", *map(_ceilings, comparison.candidates)]))
    paragraphs.append("\n".join(recommended(_offers(comparison))))
    if notes:
        paragraphs.append("\n".join(notes))
    return "\n\n".join([*paragraphs, textwrap.fill(_legend(columns), min(width or WIDTH, WIDTH))])


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
    """0.464, and 0.000229: three digits of what is below 1."""
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
    """Hours in words; of what takes less than two minutes the seconds."""
    return hours(amount) if amount >= 1 / 30 else f"{seconds(amount * 3600)} s"


def _legend(columns: Collection[str]) -> str:
    """What the columns mean."""
    meanings = {
        "s/epoch": "with evaluation, once memory caches what fits.",
        "s/epoch range": "fastest and slowest within reason.",
        "measured": "images/s of --from-run on this very layout and batch.",
        "efficiency": "against as many GPUs that each work alone.",
        "basis": "where the rate of the bottleneck is from.",
        "USD": "on demand, us-east-1, without volumes.",
        "USD range": "fastest and slowest within reason.",
        "spot": spot_meaning(),
    }
    return " ".join(f"{name}: {meaning}" for name, meaning in meanings.items() if name in columns)


def spot_meaning() -> str:
    share = spot_share()
    return f"{share.value:g} of the price on demand, an estimate ({share.best:g} to {share.worst:g})."


def as_json(comparison: Comparison) -> str:
    rows = [_row(row) for row in comparison.candidates]
    lists = {name: list(getattr(comparison, name)) for name in ("corrections", "notes", "left_out")}
    return json.dumps({"candidates": rows, **lists}, indent=2)


def _row(row: Candidate) -> dict[str, Any]:
    spot = row.spot_usd
    return {
        "instance_type": row.name,
        "nodes": row.layout.nodes,
        "replicas": row.layout.replicas,
        **asdict(row.forecast),
        "measured_images_per_s": row.measured,
        "usd_per_hour": row.usd_per_hour,
        "usd_per_epoch": row.forecast.usd_per_epoch(row.usd_per_hour),
        "usd": row.usd,
        "usd_range": row.usd_range,
        "spot_usd": spot.value,
        "spot_usd_range": (spot.best, spot.worst),
        "spot_usd_source": spot.source,
    }


def cases_as_text(cases: Sequence[Case]) -> str:
    """Each case with its rows and errors."""
    return "\n\n".join([*map(_case, cases), "given: an input to the forecast of the other rows, so it has no error."])


def _case(case: Case) -> str:
    rows = [
        [
            f"{row.nodes} x {row.gpus}",
            _digits(row.published_s),
            _digits(row.forecast_s),
            " - ".join(map(_digits, row.range_s)),
            f"given: {row.given}" if row.given else f"{row.error:+.1%}",
            row.limit,
        ]
        for row in case.rows
    ]
    columns = ["nodes x GPUs", "published s", "forecast s", "range", "error", "limited by"]
    parts = [f"{case.name}   ({case.source})", table(columns, rows, right=set(columns[1:-1]))]
    if case.bound:
        parts.append(f"  bound: {case.bound:.0%}")
    if case.unknown:
        parts.append(f"  what it cannot know: {case.unknown}")
    return "\n".join(parts)


def _digits(amount: float) -> str:
    """As many digits as publications give."""
    return f"{amount:,.0f}" if amount >= 1000 else f"{amount:.4g}"


def cases_as_json(cases: Sequence[Case]) -> str:
    return json.dumps(
        [{**asdict(case), "rows": [{**asdict(row), "error": row.error} for row in case.rows]} for case in cases],
        indent=2,
    )
