"""Rows of bars, in matplotlib: a colour and a hatch for each part, so that no reader depends on colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from launch.core.drawing.charts import Bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS = {"data wait": ("#E69F00", ".."), "forward": ("#56B4E9", ""), "backward": ("#0072B2", ""),
         "communication": ("#D55E00", "///"), "optimizer": ("#CC79A7", "xx"), "compute": ("#0072B2", ""),
         "": ("#0072B2", "")}  # fmt: skip
INK = "#1a2027"
STACKED_HEIGHT, HEIGHT = 0.72, 0.38  # of a bar; rows are 1 apart


def draw_bars(axes: Axes, chart: Bars, narrowness: float) -> None:
    """Draws the rows.  narrowness: how many times as wide the axes would be across a page, which texts need to know."""
    rows = list(range(len(chart.rows)))
    ends = _stacked(axes, chart) if chart.is_stacked else _side_by_side(axes, chart)
    _texts(axes, chart, ends, narrowness)
    axes.set_yticks(rows, [bar.label for bar in chart.rows])
    axes.set_ylim(len(chart.rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(min(ends) < 0)
    axes.grid(axis="x", alpha=0.3, linewidth=0.5)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)


def _stacked(axes: Axes, chart: Bars) -> list[float]:
    """Draws the parts of each row end to end; returns where the rows end."""
    ends = [0.0] * len(chart.rows)
    for number, part in enumerate(chart.parts):
        lengths = [bar.parts[number] for bar in chart.rows]
        _bars(axes, part, range(len(chart.rows)), lengths, STACKED_HEIGHT, left=ends)
        ends = [end + length for end, length in zip(ends, lengths, strict=True)]
    return ends


def _side_by_side(axes: Axes, chart: Bars) -> list[float]:
    """Draws the parts of each row beside each other; returns where the longest of each row ends."""
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
    """Draws the range, where there is one, and the text behind the end of each bar, and makes room for it."""
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
