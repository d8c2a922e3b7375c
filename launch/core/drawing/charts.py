"""Charts as data: values, units and alternative text.  picture.py draws them.  Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

TIMES, MINUS, DASH = "\N{MULTIPLICATION SIGN}", "\N{MINUS SIGN}", "\N{EN DASH}"
# Within a power of ten, coarse to fine.
STEPS = (
    (1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9)
)  # fmt: skip
# The most lines that colours and markers can distinguish, and the most rows that fit on a page.
LINES, ROWS = 7, 24


@dataclass(frozen=True)
class Measured:
    """A median with its range; without a range low and high equal the value."""

    value: float
    low: float
    high: float

    def __mul__(self, factor: float) -> "Measured":
        return Measured(self.value * factor, self.low * factor, self.high * factor)

    def __truediv__(self, other: "Measured") -> "Measured":
        """The quotient, from the lowest by the highest to the highest by the lowest; other: above 0."""
        return Measured(self.value / other.value, self.low / other.high, self.high / other.low)

    @property
    def is_spread(self) -> bool:
        return self.high > self.low


def exactly(value: float) -> Measured:
    """A value without a range."""
    return Measured(value, value, value)


@dataclass(frozen=True)
class Line:
    """A line or curve of a chart."""

    label: str
    points: tuple[tuple[float, Measured], ...]  # (x, y)
    is_curve: bool = False  # computed rather than measured, so without markers
    is_joined: bool = True  # by a line
    is_extrapolated: bool = False  # a curve outside the measured range


@dataclass(frozen=True)
class Lines:
    """Lines over an axis."""

    name: str
    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    ideals: tuple[tuple[tuple[float, float], ...], ...] = ()  # dashed and grey, with one name in the legend for all
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


def alt(chart: Chart) -> str:
    """The chart in words, for readers who do not see the picture."""
    if isinstance(chart, Bars):
        rows = [f"{bar.label}: {bar.text}" for bar in chart.rows]
        return f"{chart.title}. Bars of {chart.x_label}. {'; '.join(rows)}."
    rows = [f"{line.label}: {_last_points(line)}" for line in chart.lines if not line.is_curve]
    return f"{chart.title}. {chart.y_label} over {chart.x_label}. {'; '.join(rows)}."


def _last_points(line: Line) -> str:
    return ", ".join(f"{figure(value.value)} at {x:g}" for x, value in line.points[-4:])


def lines_of(lines: Sequence[Line], chart_note: str = "") -> tuple[tuple[Line, ...], str]:
    """The lines that colours can distinguish, and a note on those left out."""
    left_out = len(lines) - LINES
    more = f"{LINES} of {len(lines)} series; all are in the table." if left_out > 0 else ""
    return tuple(lines[:LINES]), " ".join(part for part in (chart_note, more) if part)


def rows_of(rows: Sequence[Bar], most: int = ROWS) -> tuple[tuple[Bar, ...], str]:
    """The rows that fit, and a note on those left out."""
    return tuple(rows[:most]), f"{most} of {len(rows)} points; all are in the table." if len(rows) > most else ""


def round_ticks(low: float, high: float) -> list[float]:
    """Three to seven round values from about low to high, for a logarithmic axis; both above 0."""
    ticks: list[float] = []
    for steps in STEPS:
        ticks = _ticks(low, high, steps)
        if len(ticks) >= 3:
            break
    return ticks[:: math.ceil(len(ticks) / 7)] if ticks else [low]


def _ticks(low: float, high: float, steps: Sequence[float]) -> list[float]:
    """`steps` times powers of ten, from low to high with a tolerance for rounding."""
    rounding = 1.0000001
    ticks = []
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        values = [step * 10.0**power for step in steps]
        ticks += [round(value, 9) for value in values if low <= value * rounding and value <= high * rounding]
    return ticks


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
    """Format with a sign: +0.7, or -1.6 with a minus as wide as the plus."""
    return f"{points:+.1f}".replace("-", MINUS)
