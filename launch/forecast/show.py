"""A comparison as a table and a recommendation, and as JSON; the published cases likewise.  Pure."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from math import floor, log10
from typing import Any

from launch.core.estimate.words import hours, seconds
from launch.core.price import usd
from launch.forecast.compare import Candidate, Comparison, spot_share
from launch.forecast.published import Case

HEADS = ("instance", "nodes", "GPUs", "s/epoch", "range", "images/s", "efficiency", "limited by", "that is",
         "job", "USD/epoch", "USD", "range", "spot")  # fmt: skip
LEFT = ("instance", "limited by", "that is")


def as_text(comparison: Comparison) -> str:
    """The table, the best first, and what to know of it."""
    config, best = comparison.config, comparison.candidates[0]
    what = f"{config.model} on {config.dataset}, {config.epochs} epochs, batch {_batch(best)} on each"
    blocks = [what, aligned([HEADS, *map(_cells, comparison.candidates)]), "\n".join(_recommended(comparison))]
    told = [*comparison.said, *(f"note: {note.rstrip('.')}." for note in comparison.notes)]
    told += [f"left out: {reason}" for reason in comparison.left_out]
    return "\n\n".join([*blocks, *(["\n".join(told)] if told else []), _legend()])


def _batch(candidate: Candidate) -> str:
    step = candidate.forecast.step
    images = candidate.forecast.images_per_s * step.step_s / candidate.layout.replicas
    return f"{images:,.0f}"


def _cells(row: Candidate) -> tuple[str, ...]:
    guess = row.forecast
    return (
        row.name,
        str(row.layout.nodes),
        str(row.layout.replicas) if row.instance.is_gpu else "-",
        seconds(guess.epoch_s),
        " - ".join(map(seconds, guess.epoch_range_s)),
        f"{guess.images_per_s:,.0f}",
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


def _recommended(comparison: Comparison) -> list[str]:
    """The cheapest and the fastest, and what they wait for."""
    spot = comparison.options.spot
    cheapest = min(comparison.candidates, key=lambda row: row.spot_usd.value if spot else row.usd)
    fastest = min(comparison.candidates, key=lambda row: row.forecast.hours)
    if cheapest is fastest:
        return [f"Take {_named(cheapest)}: the cheapest and the fastest, {_bill(cheapest, spot)}."]
    return [
        f"Cheapest: {_named(cheapest)}, {_bill(cheapest, spot)}. Fastest: {_named(fastest)}, {_bill(fastest, spot)}: "
        f"{cheapest.forecast.hours / fastest.forecast.hours:.1f} times as fast for "
        f"{fastest.usd / cheapest.usd:.1f} times the price."
    ]


def _named(row: Candidate) -> str:
    return f"{row.layout.nodes} x {row.name}"


def _bill(row: Candidate, spot: bool) -> str:
    return f"{usd(row.spot_usd.value if spot else row.usd)} in {hours(row.forecast.hours)}"


def _legend() -> str:
    share = spot_share()
    return (
        "range: fastest and slowest within reason. s/epoch: with evaluation, once memory holds what fits. efficiency: "
        "against as\nmany GPUs that each work alone. that is: what the rate behind the limit is worth. USD: on demand, "
        f"us-east-1, without volumes.\nspot: {share.value:g} of it, an estimate ({share.best:g} to {share.worst:g})."
    )


def as_json(comparison: Comparison) -> str:
    rows = [_row(row) for row in comparison.candidates]
    lists = {name: list(getattr(comparison, name)) for name in ("said", "notes", "left_out")}
    return json.dumps({"candidates": rows, **lists}, indent=2)


def _row(row: Candidate) -> dict[str, Any]:
    spot = row.spot_usd
    return {
        "instance_type": row.name,
        "nodes": row.layout.nodes,
        "replicas": row.layout.replicas,
        **asdict(row.forecast),
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
    return "\n\n".join([*map(_case, cases), "given: what the forecast was told of that row, and then knew for others."])


def _case(case: Case) -> str:
    rows = [
        (
            f"  {row.nodes} x {row.gpus}",
            *map(_digits, (row.published_s, row.forecast_s)),
            " - ".join(map(_digits, row.range_s)),
            f"given: {row.given}" if row.given else f"{row.error:+.1%}",
            row.limit,
        )
        for row in case.rows
    ]
    heads = ("  nodes x GPUs", "published s", "forecast s", "range", "error", "limited by")
    parts = [f"{case.name}   ({case.source})", aligned([heads, *rows], left=("  nodes x GPUs", "limited by"))]
    if case.bound:
        parts.append(f"  bound: {case.bound:.0%}")
    if case.unknown:
        parts.append(f"  what it cannot know: {case.unknown}")
    return "\n".join(parts)


def _digits(amount: float) -> str:
    """As many as those who published give."""
    return f"{amount:,.0f}" if amount >= 1000 else f"{amount:.4g}"


def cases_as_json(cases: Sequence[Case]) -> str:
    return json.dumps(
        [{**asdict(case), "rows": [{**asdict(row), "error": row.error} for row in case.rows]} for case in cases],
        indent=2,
    )


def aligned(rows: Sequence[Sequence[str]], left: Sequence[str] = LEFT) -> str:
    """Rows under their heads, the first; columns named in `left` begin at their left, the others end at their right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if head in left else cell.rjust(width)
            for cell, width, head in zip(row, widths, rows[0], strict=True)
        ).rstrip()
        for row in rows
    )
