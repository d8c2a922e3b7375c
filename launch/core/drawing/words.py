"""The words of a chart as matplotlib draws them.  Pure."""

from dataclasses import replace

from launch.core.drawing.charts import Chart, Lines
from trainer.errors import printable

LONGEST = 80  # letters: a name of 100,000 takes ten seconds, and a longer one leaves no room for the chart


def drawable(chart: Chart) -> Chart:
    """The chart with words that are drawn as they are: names of runs, settings and metrics may be a stranger's.

    matplotlib reads formulas between two $, which it fails on unless they are right; leaves what begins with _ out of
    the legend; and fails on the bytes of a file's name that are no text.
    """
    chart = replace(chart, title=_drawn(chart.title), x_label=_drawn(chart.x_label), y_label=_drawn(chart.y_label))
    if isinstance(chart, Lines):
        return replace(chart, lines=tuple(replace(line, label=_drawn(line.label)) for line in chart.lines))
    rows = tuple(replace(row, label=_drawn(row.label), text=_drawn(row.text)) for row in chart.rows)
    return replace(chart, rows=rows)


def _drawn(text: str) -> str:
    words = printable(text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}...").replace("$", r"\$")
    return f" {words}" if words.startswith("_") else words
