"""A comparison of machines for a script as a table and a recommendation, and as JSON.  Pure."""

import json
import textwrap
from collections.abc import Collection
from typing import Any

from launch.core.tables import narrowed, table, without_empty
from launch.forecast.script import ScriptCandidate, ScriptComparison
from launch.forecast.show import WIDTH, Offer, recommended, spot_meaning, time
from launch.forecast.words import counted

COLUMNS = ("machines", "GPUs", "basis", "job", "job range", "USD", "USD range", "spot")
WORDS = ("machines", "basis")
OPTIONAL = ("spot", "USD range", "basis", "job range")  # left out on a narrow terminal, the first of them first


def as_text(comparison: ScriptComparison, width: int | None = None) -> str:
    """The table, the best first, the recommendation and the notes.  width: of the terminal."""
    optional = [name for name in OPTIONAL if name != "spot" or not comparison.options.spot]
    known = without_empty(COLUMNS, [_cells(row) for row in comparison.candidates])
    widest = min(width or WIDTH, WIDTH)
    columns, rows = narrowed(*known, optional, width or WIDTH)
    paragraphs = [
        f"{comparison.samples.script}, by {counted({len(comparison.samples.known)}, 'run')} of it",
        table(columns, rows, right=set(columns) - set(WORDS)),
        "\n".join(_recommended(comparison)),
        "\n".join(textwrap.fill(note, widest, subsequent_indent="  ") for note in _notes(comparison)),
        textwrap.fill(_legend(columns), widest),
    ]
    return "\n\n".join(paragraphs)


def _notes(comparison: ScriptComparison) -> list[str]:
    return [
        *(f"{line.rstrip('.')}." for line in comparison.sources),
        *(f"note: {line.rstrip('.')}." for line in comparison.notes),
        *(f"left out: {reason}" for reason in comparison.left_out),
    ]


def _cells(row: ScriptCandidate) -> tuple[str, ...]:
    """What is not known is left empty."""
    return (
        row.label,
        str(row.layout.replicas),
        _basis(row),
        "" if row.hours is None else time(row.hours),
        " - ".join(map(time, row.hours_range)),
        "" if row.usd is None else f"{row.usd:,.2f}",
        "" if row.usd_range is None else " - ".join(f"{bound:,.2f}" for bound in row.usd_range),
        "" if row.spot_usd is None else f"{row.spot_usd.value:,.2f}",
    )


def _basis(row: ScriptCandidate) -> str:
    return row.expected.basis + (", extrapolated" if row.is_beyond and row.hours is not None else "")


def _recommended(comparison: ScriptComparison) -> list[str]:
    """The cheapest and the fastest of those with a price of which something is expected; without prices the fastest."""
    known = [(row.hours, row) for row in comparison.candidates if row.hours is not None]
    if not known:
        return ["Nothing is recommended, as none of these was measured: run the script once on one of them."]
    hours, fastest = min(known, key=lambda pair: pair[0])
    how = f"{_basis(fastest)}, {counted({fastest.layout.replicas}, 'GPU')}"
    offers = _offers(comparison)
    lines = recommended(offers) if offers else [f"Fastest: {fastest.label} ({how}) in {time(hours)}."]
    return lines + _perhaps_faster(comparison, hours)


def _offers(comparison: ScriptComparison) -> list[Offer]:
    offers = []
    for row in comparison.candidates:
        if row.hours is not None and row.usd is not None and row.spot_usd is not None:
            price = row.spot_usd.value if comparison.options.spot else row.usd
            offers.append(Offer(f"{row.label} ({_basis(row)})", row.hours, price))
    return offers


def _perhaps_faster(comparison: ScriptComparison, hours: float) -> list[str]:
    """The candidate of which nothing is expected that might be the fastest."""
    unknown = [row for row in comparison.candidates if row.hours is None]
    best = min(unknown, key=lambda row: row.hours_range[0], default=None)
    if best is None or best.hours_range[0] >= hours:
        return []
    return [f"{best.label} may be faster: {time(best.hours_range[0])} at best.  Run it once to know."]


def _legend(columns: Collection[str]) -> str:
    """What the columns mean."""
    meanings = {
        "basis": "measured: the median of its runs; fitted: by Amdahl's law; range: nothing is expected.",
        "job": "from the launch to the end.",
        "job range": "of what was measured a tenth less and more, else from perfect scaling to no gain.",
        "USD": "on demand, us-east-1, without volumes.",
        "spot": spot_meaning(),
    }
    return " ".join(f"{name}: {meaning}" for name, meaning in meanings.items() if name in columns)


def as_json(comparison: ScriptComparison) -> str:
    rows = [_row(row) for row in comparison.candidates]
    lists = {name: list(getattr(comparison, name)) for name in ("sources", "notes", "left_out")}
    return json.dumps({"script": comparison.samples.script, "candidates": rows, **lists}, indent=2)


def _row(row: ScriptCandidate) -> dict[str, Any]:
    spot = row.spot_usd
    return {
        "instance_type": row.name,
        "nodes": row.layout.nodes,
        "replicas": row.layout.replicas,
        "basis": row.expected.basis,
        "is_extrapolated": row.is_beyond,
        "hours": row.hours,
        "hours_range": row.hours_range,
        "usd_per_hour": row.usd_per_hour,
        "usd": row.usd,
        "usd_range": row.usd_range,
        "spot_usd": spot and spot.value,
        "spot_usd_range": spot and (spot.best, spot.worst),
        "spot_usd_source": spot and spot.source,
    }
