"""Charts as pictures: SVG for a page, files for a paper, drawn by matplotlib."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from launch.core.drawing.charts import Bars, Chart, Line, Lines, doublings, figure, round_ticks
from trainer.errors import printable
from trainer.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure


# Okabe and Ito's palette, which colour-blind readers can distinguish.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STYLES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)), (0, (7, 2)), (0, (2, 1)), (0, (6, 1, 1, 1, 1, 1)))
GREY = "#767676"
LOG_SCALE, DOTTED = ", log", (0, (1, 2))
PARTS = {"data wait": ("#E69F00", ".."), "forward": ("#56B4E9", ""), "backward": ("#0072B2", ""),
         "communication": ("#D55E00", "///"), "optimizer": ("#CC79A7", "xx"), "compute": ("#0072B2", ""),
         "": ("#0072B2", "")}  # fmt: skip
INK = "#1a2027"
STACKED_HEIGHT, HEIGHT = 0.72, 0.38  # of a bar; rows are 1 apart


def draw_lines(axes: Axes, chart: Lines) -> None:
    for number, ideal in enumerate(chart.ideals):
        label = chart.ideal_label if number == 0 else None
        axes.plot(*zip(*ideal, strict=True), color=GREY, linestyle=(0, (4, 3)), linewidth=0.9, label=label, zorder=1)
    number = -1
    for line in chart.lines:
        number += not line.is_curve  # a curve belongs to the points before it
        _line(axes, line, number)
    axes.set_xlabel(_label(chart.x_label, is_log=bool(chart.x_ticks)))
    axes.set_ylabel(_label(chart.y_label, is_log=chart.is_log_y))
    axes.grid(alpha=0.3, linewidth=0.5)
    if chart.x_ticks:
        _logarithmic(axes, chart.x_ticks)
    if chart.is_log_y:
        _logarithmic_y(axes, doublings if chart.is_doubling_y else round_ticks)
    elif chart.from_zero:
        axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.05)
    if not chart.x_ticks and chart.x_label == "epoch":
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))


def _label(text: str, *, is_log: bool) -> str:
    return f"{text}{LOG_SCALE if is_log else ''}"


def _line(axes: Axes, line: Line, number: int) -> None:
    xs, values = [x for x, _ in line.points], [value for _, value in line.points]
    ys = [value.value for value in values]
    colour, style = COLOURS[number % len(COLOURS)], STYLES[number % len(STYLES)]
    if line.is_curve:
        axes.plot(xs, ys, color=colour, linestyle=DOTTED if line.is_extrapolated else style, linewidth=1)
        return
    marker = MARKERS[number % len(MARKERS)]
    every = max(1, len(xs) // 12)
    joined = style if line.is_joined else "none"
    axes.plot(xs, ys, color=colour, linestyle=joined, marker=marker, markevery=every, label=line.label,
              markeredgecolor="white", markeredgewidth=0.4, zorder=3)  # fmt: skip
    if any(value.is_spread for value in values):
        _ranges(axes, line, colour)


def _ranges(axes: Axes, line: Line, colour: str) -> None:
    xs, values = [x for x, _ in line.points], [value for _, value in line.points]
    reach = [[v.value - v.low for v in values], [v.high - v.value for v in values]]
    axes.errorbar(xs, [value.value for value in values], yerr=reach, fmt="none", ecolor=colour, elinewidth=0.8,
                  capsize=2, alpha=0.7, zorder=2)  # fmt: skip


def _logarithmic(axes: Axes, ticks: Sequence[float]) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{tick:,g}" if tick < 10_000 else f"{tick:,.0f}" for tick in ticks])
    axes.margins(x=0.08)


def _logarithmic_y(axes: Axes, ticks_between: Callable[[float, float], list[float]]) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    axes.set_yscale("log")
    axes.margins(y=0.1)
    low, high = axes.get_ylim()
    ticks = ticks_between(low, high)
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_yticklabels([f"{tick:,g}" if tick < 10_000 else figure(tick) for tick in ticks])
    axes.set_ylim(low, high)


def draw_bars(axes: Axes, chart: Bars, narrowness: float) -> None:
    """Draw the rows.  narrowness: width of a page over that of these axes, to place texts."""
    rows = list(range(len(chart.rows)))
    ends = _stacked(axes, chart) if chart.is_stacked else _side_by_side(axes, chart)
    _texts(axes, chart, ends, narrowness)
    axes.set_yticks(rows, [bar.label for bar in chart.rows])
    axes.set_ylim(len(chart.rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(min(ends) < 0)
    axes.grid(axis="x", alpha=0.3, linewidth=0.5)
    axes.set_xlabel(chart.x_label)
    axes.set_title(f"by {chart.y_label}", fontsize=7.5, fontweight="normal")  # upright it is longer than a few rows


def _stacked(axes: Axes, chart: Bars) -> list[float]:
    """Draw the parts of each row end to end; return where the rows end."""
    ends = [0.0] * len(chart.rows)
    for number, part in enumerate(chart.parts):
        lengths = [bar.parts[number] for bar in chart.rows]
        _bars(axes, part, range(len(chart.rows)), lengths, STACKED_HEIGHT, left=ends)
        ends = [end + length for end, length in zip(ends, lengths, strict=True)]
    return ends


def _side_by_side(axes: Axes, chart: Bars) -> list[float]:
    """Draw the parts of each row side by side; return where the longest of each row ends."""
    for number, part in enumerate(chart.parts):
        shift = (number - (len(chart.parts) - 1) / 2) * HEIGHT
        lengths = [bar.parts[number] for bar in chart.rows]
        _bars(axes, part, [row + shift for row in range(len(chart.rows))], lengths, HEIGHT)
    return [max(0.0, *bar.parts) if len(bar.parts) > 1 else bar.parts[0] for bar in chart.rows]


def _bars(
    axes: Axes, part: str, places: Sequence[float], lengths: Sequence[float], height: float, left: Any = None
) -> None:
    colour, hatch = PARTS[part]
    axes.barh(places, lengths, height, left=left, color=colour, edgecolor="white", hatch=hatch, linewidth=0.4,
              label=part or None)  # fmt: skip


def _texts(axes: Axes, chart: Bars, ends: Sequence[float], narrowness: float) -> None:
    """Draw ranges, if any, and the text after the end of each bar, and widen the axes for it."""
    reach = []
    for row, (bar, end) in enumerate(zip(chart.rows, ends, strict=True)):
        spread = bar.spread
        if spread:
            error = [[end - spread.low], [spread.high - end]]
            axes.errorbar([end], [row], xerr=error, fmt="none", ecolor=INK, elinewidth=0.8, capsize=2)
        reach.append(max(end, spread.high) if spread else end)
        shift, side = (-3, "right") if end < 0 else (3, "left")
        axes.annotate(bar.text, (reach[row], row), (shift, 0), textcoords="offset points", va="center", ha=side,
                      fontsize=7)  # fmt: skip
    low, high = min(0.0, *reach), max(0.0, *reach)
    high += low == high  # all of them 0
    room = (high - low) * (0.012 * max(len(bar.text) for bar in chart.rows) + 0.04) * narrowness
    axes.set_xlim(low - (room if low < 0 else 0), high + (room if high > 0 else 0))


COLUMN, PAGE = 3.5, 7.0  # inches
LOOK = {
    "font.size": 8, "axes.titlesize": 9, "axes.labelsize": 8, "xtick.labelsize": 7.5, "ytick.labelsize": 7.5,
    "legend.fontsize": 7, "axes.linewidth": 0.6, "lines.linewidth": 1.3, "lines.markersize": 4.5,
    "xtick.major.width": 0.6, "ytick.major.width": 0.6, "hatch.linewidth": 0.5, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": "#4d5761",
    "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "svg.hashsalt": "report", "pdf.fonttype": 42, "figure.facecolor": "white",
    # With hinting, the width of letters depends on the resolution, and they would not fit the layout.
    "text.hinting": "none",
}  # fmt: skip
LONGEST = 80  # characters of a name: longer ones leave no room for the chart
ROWS_IN_OVERVIEW, SHORT = 12, 24
ROW, GROUP = 0.19, 0.29  # inches a bar takes, and a pair of them


def save(chart: Chart, folder: Path, formats: Sequence[str]) -> str:
    """Write the chart into `folder` in each of `formats` (png, svg, pdf); return it as SVG."""
    with _look():
        picture = figure_of(chart)
        _lay_out(picture)
        for kind in formats:
            write_atomically(folder / f"{chart.name}.{kind}", _drawn(picture, kind, 300))
        return _svg(picture)


def as_svg(chart: Chart) -> str:
    """The chart as SVG; equal charts give equal text."""
    with _look():
        picture = figure_of(chart)
        _lay_out(picture)
        return _svg(picture)


def data_uri(svg: str) -> str:
    """The SVG as a data URI: in an <img>, its ids and styles do not collide with those of the page."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _svg(picture: Figure) -> str:
    return _drawn(picture, "svg").decode()


def _drawn(picture: Figure, kind: str, dpi: int | None = None) -> bytes:
    written = BytesIO()
    picture.savefig(written, format=kind, dpi=dpi or "figure", metadata=_undated(kind))
    return written.getvalue()


def save_overview(charts: Sequence[Chart], path: Path) -> None:
    """Write up to four charts as one PNG, two side by side."""
    from matplotlib.figure import Figure

    shown = [_fewer(chart) if isinstance(chart, Bars) else chart for chart in charts[:4]]
    with _look():
        rows = (len(shown) + 1) // 2
        picture = Figure(figsize=(2 * COLUMN + 0.6, rows * 3.5), layout="constrained")
        places = picture.subfigures(rows, min(2, len(shown)), squeeze=False, wspace=0.04, hspace=0.04).flatten()
        for place, chart in zip(places, shown, strict=False):
            _draw(place, chart, COLUMN)
        _lay_out(picture)
        write_atomically(path, _drawn(picture, "png", 200))


def _fewer(chart: Bars) -> Bars:
    """The chart with only the rows that fit into a quarter of a picture."""
    short = [bar for bar in chart.rows if len(bar.label) <= SHORT]
    return replace(chart, rows=tuple(short or chart.rows)[:ROWS_IN_OVERVIEW])


def _lay_out(picture: Figure) -> None:
    """Fix the layout for all formats.  The second pass knows the width of tick labels from the first."""
    for _ in range(2):
        picture.draw_without_rendering()
    picture.set_layout_engine("none")


def figure_of(chart: Chart) -> Figure:
    """The chart as a matplotlib figure, not yet laid out."""
    from matplotlib.figure import Figure

    with _look():
        picture = Figure(figsize=_size(chart), layout="constrained")
        _draw(picture, chart, _size(chart)[0])
    return picture


def _size(chart: Chart) -> tuple[float, float]:
    """Width and height in inches."""
    if isinstance(chart, Lines):
        keys = sum(bool(line.label) for line in chart.lines) + bool(chart.ideals)
        return COLUMN, 2.55 + 0.15 * keys
    row = ROW if chart.is_stacked else GROUP
    longest = max(len(bar.label) for bar in chart.rows)
    width = COLUMN if longest <= 22 and not chart.is_stacked and len(chart.parts) == 1 else PAGE
    return width, 0.95 + row * len(chart.rows) + (0.2 if len(chart.parts) > 1 else 0)


def _draw(place: Figure | SubFigure, chart: Chart, width: float) -> None:
    """Draws the chart with its title and legend.  width: of `place`, in inches."""
    chart = drawable(chart)
    axes = place.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    if isinstance(chart, Lines):
        draw_lines(axes, chart)
    else:
        draw_bars(axes, chart, PAGE / width)
    place.suptitle(chart.title, x=0.01, horizontalalignment="left", fontsize=9, fontweight="bold")
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        columns, length = _legend(chart, labels, width)
        place.legend(handles, labels, loc="outside lower left", ncols=columns, frameon=False, handlelength=length)


def _legend(chart: Chart, labels: Sequence[str], width: float) -> tuple[int, float]:
    """How many columns the legend has, and how long its samples are, in characters."""
    if isinstance(chart, Bars):
        return (len(labels) if width > COLUMN else 3), 1.6
    fits_twice = len(labels) > 1 and max(map(len, labels)) <= 24
    return (2 if fits_twice else 1), 3


def drawable(chart: Chart) -> Chart:
    """Escape names of runs, settings and metrics, so that they are drawn literally.

    matplotlib parses text between two $ as a formula and fails if it is invalid, omits labels that begin with _ from
    the legend, and fails on undecodable bytes of file names.
    """
    chart = replace(
        chart, title=_as_drawn(chart.title), x_label=_as_drawn(chart.x_label), y_label=_as_drawn(chart.y_label)
    )
    if isinstance(chart, Lines):
        return replace(chart, lines=tuple(replace(line, label=_as_drawn(line.label)) for line in chart.lines))
    rows = tuple(replace(row, label=_as_drawn(row.label), text=_as_drawn(row.text)) for row in chart.rows)
    return replace(chart, rows=rows)


def _as_drawn(text: str) -> str:
    words = printable(text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}...").replace("$", r"\$")
    return f" {words}" if words.startswith("_") else words


_DRAWING = RLock()  # matplotlib's settings and Python's warnings are those of the process


@contextmanager
def _look() -> Iterator[None]:
    import matplotlib

    with _DRAWING, warnings.catch_warnings(), matplotlib.rc_context(LOOK):  # type: ignore[arg-type]  # a Literal of hundreds
        # Warnings on characters that the font lacks, and on labels that are too long: the names are the user's.
        warnings.filterwarnings("ignore", r"Glyph \d+|constrained_layout not applied")
        yield


def _undated(kind: str) -> dict[str, Any]:
    """Metadata without a date, so that equal pictures are equal files."""
    return {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {"Software": None})
