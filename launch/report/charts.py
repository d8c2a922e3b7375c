"""Charts as data: what is drawn, in which units.  drawing.py turns them into pictures.  Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from launch.report.points import Measured

TIMES, MINUS, DASH = "\N{MULTIPLICATION SIGN}", "\N{MINUS SIGN}", "\N{EN DASH}"
# Within a power of ten, coarse to fine.
STEPS = (
    (1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9)
)  # fmt: skip
# The most lines that colours and markers still tell apart, and rows that fit on a page.
LINES, ROWS = 7, 24


@dataclass(frozen=True)
class Line:
    """points: (x, y); is_curve: computed rather than measured, so without markers; is_joined: by a line."""

    label: str
    points: tuple[tuple[float, Measured], ...]
    is_curve: bool = False
    is_joined: bool = True


@dataclass(frozen=True)
class Lines:
    """Lines over an axis.  ideals: dashed and grey, one name in the legend for all; note: what is not shown."""

    name: str
    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    ideals: tuple[tuple[tuple[float, float], ...], ...] = ()
    ideal_label: str = "ideal"
    x_ticks: tuple[float, ...] = ()  # where x is drawn on a logarithmic axis; none: an ordinary one
    is_log_y: bool = False
    is_doubling_y: bool = False  # ticks at 1, 2, 4, ... of a logarithmic y
    from_zero: bool = False
    note: str = ""


@dataclass(frozen=True)
class Bar:
    """A row: the parts that make up its length, and a text at its end."""

    label: str
    parts: tuple[float, ...]
    text: str
    spread: Measured | None = None


@dataclass(frozen=True)
class Bars:
    """Rows of bars.  parts: names of the parts, one colour each; is_stacked: end to end, else side by side.

    y_label: how the rows' labels are read.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    parts: tuple[str, ...]
    rows: tuple[Bar, ...]
    is_stacked: bool = True
    note: str = ""


Chart = Lines | Bars


def lines_of(lines: Sequence[Line], chart_note: str = "") -> tuple[tuple[Line, ...], str]:
    """As many as can be told apart, and what to say about the others."""
    left_out = len(lines) - LINES
    more = f"{LINES} of {len(lines)} series; all are in the table." if left_out > 0 else ""
    return tuple(lines[:LINES]), " ".join(part for part in (chart_note, more) if part)


def rows_of(rows: Sequence[Bar], most: int = ROWS) -> tuple[tuple[Bar, ...], str]:
    """The same for rows."""
    return tuple(rows[:most]), f"{most} of {len(rows)} points; all are in the table." if len(rows) > most else ""


def round_ticks(low: float, high: float) -> list[float]:
    """Three to seven round values from about low to high, for a logarithmic axis; both above 0."""
    for steps in STEPS:
        found = [
            round(step * 10.0**power, 9)
            for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            for step in steps
            if low <= step * 10.0**power * 1.0000001 and step * 10.0**power <= high * 1.0000001
        ]
        if len(found) >= 3:
            break
    return found[:: math.ceil(len(found) / 7)] if found else [low]


def doublings(low: float, high: float) -> list[float]:
    """The powers of two from about low to high; both above 0."""
    return [2.0**power for power in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)]


def figure(value: float) -> str:
    """At least three figures, without exponents: '12.3' for 12.345, '1,235' for 1234.5, '0.0123' for 0.012345."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def signed(points: float) -> str:
    """+0.7, or -1.6 with a minus as long as the plus."""
    return f"{points:+.1f}".replace("-", MINUS)
