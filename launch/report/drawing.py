"""Charts as pictures, as files; drawn_lines.py and drawn_bars.py draw what is within the axes.

Only these three know matplotlib, which is loaded when something is drawn.

Sized for one column of a paper (3.5 inches) or for two; Okabe and Ito's colours, and a marker, a line style or a
hatch beside each, so that nothing hangs on colour alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.report.charts import Bars, Chart, Lines
from launch.report.drawn_bars import INK, draw_bars
from launch.report.drawn_lines import draw_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

COLUMN, PAGE = 3.5, 7.0  # inches
LOOK = {
    "font.size": 8, "axes.titlesize": 9, "axes.labelsize": 8, "xtick.labelsize": 7.5, "ytick.labelsize": 7.5,
    "legend.fontsize": 7, "axes.linewidth": 0.6, "lines.linewidth": 1.3, "lines.markersize": 4.5,
    "xtick.major.width": 0.6, "ytick.major.width": 0.6, "hatch.linewidth": 0.5, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": "#4d5761",
    "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "svg.hashsalt": "report", "pdf.fonttype": 42, "figure.facecolor": "white",
    # Hinted letters are wider at some resolutions than at others, and would not fit where they were laid out.
    "text.hinting": "none",
}  # fmt: skip
ROWS_IN_OVERVIEW, SHORT = 12, 24
ROW, GROUP = 0.19, 0.29  # inches a bar takes, and a pair of them


def save(chart: Chart, folder: Path, formats: Sequence[str]) -> str:
    """Writes the chart once in each format, png, svg or pdf; returns it as SVG."""
    svg = BytesIO()
    with _look():
        drawn = figure_of(chart)
        _settle(drawn)
        drawn.savefig(svg, format="svg", metadata=_undated(".svg"))
        for kind in formats:
            drawn.savefig(folder / f"{chart.name}.{kind}", dpi=300, metadata=_undated(f".{kind}"))
    return svg.getvalue().decode()


def save_overview(charts: Sequence[Chart], path: Path) -> None:
    """Up to four charts in one picture, two beside each other."""
    from matplotlib.figure import Figure

    shown = [_fewer(chart) if isinstance(chart, Bars) else chart for chart in charts[:4]]
    with _look():
        rows = (len(shown) + 1) // 2
        drawn = Figure(figsize=(2 * COLUMN + 0.6, rows * 3.5), layout="constrained")
        places = drawn.subfigures(rows, min(2, len(shown)), squeeze=False, wspace=0.04, hspace=0.04).flatten()
        for place, chart in zip(places, shown, strict=False):
            _draw(place, chart, COLUMN)
        _settle(drawn)
        drawn.savefig(path, dpi=200, metadata=_undated(".png"))


def _fewer(chart: Bars) -> Bars:
    """The rows that there is room for in a quarter of a picture."""
    short = [bar for bar in chart.rows if len(bar.label) <= SHORT]
    return replace(chart, rows=tuple(short or chart.rows)[:ROWS_IN_OVERVIEW])


def _settle(drawn: Figure) -> None:
    """Lays it out once for all formats: the second pass knows how wide the ticks' labels came out in the first."""
    for _ in range(2):
        drawn.draw_without_rendering()
    drawn.set_layout_engine("none")


def figure_of(chart: Chart) -> Figure:
    """The chart as a figure of its own."""
    from matplotlib.figure import Figure

    with _look():
        drawn = Figure(figsize=_size(chart), layout="constrained")
        _draw(drawn, chart, _size(chart)[0])
    return drawn


def _size(chart: Chart) -> tuple[float, float]:
    if isinstance(chart, Lines):
        keys = sum(bool(line.label) for line in chart.lines) + bool(chart.ideals)
        return COLUMN, 2.55 + 0.15 * keys
    row = ROW if chart.is_stacked else GROUP
    longest = max(len(bar.label) for bar in chart.rows)
    width = COLUMN if longest <= 22 and not chart.is_stacked and len(chart.parts) == 1 else PAGE
    return width, 0.95 + row * len(chart.rows) + (0.2 if len(chart.parts) > 1 else 0)


def _draw(place: Figure | SubFigure, chart: Chart, width: float) -> None:
    """width: inches there are."""
    axes = place.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    if isinstance(chart, Lines):
        draw_lines(axes, chart)
    else:
        draw_bars(axes, chart, PAGE / width)
    place.suptitle(chart.title, x=0.01, horizontalalignment="left", fontsize=9, fontweight="bold")
    handles, names = axes.get_legend_handles_labels()
    if names:
        columns = 2 if max(map(len, names)) <= 24 and len(names) > 1 else 1
        if isinstance(chart, Bars):
            columns = len(names) if width > COLUMN else 3
        place.legend(
            handles,
            names,
            loc="outside lower left",
            ncols=columns,
            frameon=False,
            handlelength=3 if isinstance(chart, Lines) else 1.6,
        )


@contextmanager
def _look() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context(LOOK):  # type: ignore[arg-type]  # its keys are a Literal of hundreds
        yield


def _undated(suffix: str) -> dict[str, Any]:
    """The same picture is the same file, whenever it is drawn."""
    return {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix, {"Software": None})
