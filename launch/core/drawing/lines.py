"""Lines over an axis, in matplotlib: a colour, a marker and a style each, so that no reader depends on colour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from launch.core.drawing.charts import Line, Lines, doublings, figure, round_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's, which the colour-blind tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STYLES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)), (0, (7, 2)), (0, (2, 1)), (0, (6, 1, 1, 1, 1, 1)))
GREY = "#767676"
LOG_SCALE, DOTTED = ", log", (0, (1, 2))


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
