"""Draw lines and rows of bars within matplotlib's axes.

Each line has a colour, a marker and a style, each part of a bar a colour and a hatch, so that no reader depends on
colour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from launch.core.drawing.charts import Bars, Line, Lines, doublings, figure, round_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    axes.set_ylabel(chart.y_label)


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
