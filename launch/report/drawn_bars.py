"""Rows of bars, in matplotlib: a colour and a hatch for each part, so that nothing hangs on colour alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from launch.report.charts import Bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS = {"data wait": ("#E69F00", ".."), "forward": ("#56B4E9", ""), "backward": ("#0072B2", ""),
         "communication": ("#D55E00", "///"), "optimizer": ("#CC79A7", "xx"), "compute": ("#0072B2", ""),
         "": ("#0072B2", "")}  # fmt: skip
INK = "#1a2027"


def draw_bars(axes: Axes, chart: Bars, narrowness: float) -> None:
    """narrowness: how many times as wide the axes would be across a page, which texts need to know."""
    places = list(range(len(chart.rows)))
    thick = 0.72 if chart.is_stacked else 0.38
    ends = [0.0] * len(chart.rows)
    for number, part in enumerate(chart.parts):
        colour, hatch = PARTS[part]
        lengths = [bar.parts[number] for bar in chart.rows]
        shift = 0 if chart.is_stacked else (number - (len(chart.parts) - 1) / 2) * thick
        axes.barh([place + shift for place in places], lengths, thick, left=ends if chart.is_stacked else None,
                  color=colour, edgecolor="white", hatch=hatch, linewidth=0.4, label=part or None)  # fmt: skip
        grown = [end + length for end, length in zip(ends, lengths, strict=True)]
        ends = grown if chart.is_stacked else [max(pair) for pair in zip(ends, lengths, strict=True)]
    _ends(axes, chart, ends, narrowness)
    axes.set_yticks(places, [bar.label for bar in chart.rows])
    axes.set_ylim(len(chart.rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(min(ends) < 0)
    axes.grid(axis="x", alpha=0.3, linewidth=0.5)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)


def _ends(axes: Axes, chart: Bars, ends: Sequence[float], narrowness: float) -> None:
    """The range, where there is one, and the text behind the end of each bar, with room for it."""
    reach = [max(end, bar.spread.high) if bar.spread else end for bar, end in zip(chart.rows, ends, strict=True)]
    for place, (bar, end) in enumerate(zip(chart.rows, ends, strict=True)):
        if bar.spread:
            error = [[end - bar.spread.low], [bar.spread.high - end]]
            axes.errorbar([end], [place], xerr=error, fmt="none", ecolor=INK, elinewidth=0.8, capsize=2)
        left = end < 0
        axes.annotate(bar.text, (reach[place], place), (-3 if left else 3, 0), textcoords="offset points",
                      va="center", ha="right" if left else "left", fontsize=7)  # fmt: skip
    low, high = min(0.0, *reach), max(0.0, *reach)
    high += low == high  # all of them 0
    room = (high - low) * (0.012 * max(len(bar.text) for bar in chart.rows) + 0.04) * narrowness
    axes.set_xlim(low - (room if low < 0 else 0), high + (room if high > 0 else 0))
