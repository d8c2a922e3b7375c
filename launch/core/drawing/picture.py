"""Charts as pictures: SVG for a page, files for a paper.  plots.py draws what is within the axes.

Only these two know matplotlib, which is imported when something is drawn.

Pictures are as wide as one column of a paper (3.5 inches) or two.  Colours are Okabe and Ito's; a marker, a line style
or a hatch goes with each, so that no reader depends on colour.
"""

from __future__ import annotations

import base64
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.core.drawing.charts import Bars, Chart, Lines
from launch.core.drawing.plots import INK, draw_bars, draw_lines
from trainer.errors import printable
from trainer.files import write_atomically

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


@contextmanager
def _look() -> Iterator[None]:
    import matplotlib

    with warnings.catch_warnings(), matplotlib.rc_context(LOOK):  # type: ignore[arg-type]  # a Literal of hundreds
        # Warnings on characters that the font lacks, and on labels that are too long: the names are the user's.
        warnings.filterwarnings("ignore", r"Glyph \d+|constrained_layout not applied")
        yield


def _undated(kind: str) -> dict[str, Any]:
    """Metadata without a date, so that equal pictures are equal files."""
    return {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {"Software": None})
