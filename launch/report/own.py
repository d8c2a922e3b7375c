"""Runs of users' own scripts: their metrics as sentences, charts and a table.  Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from launch.core.drawing.charts import DASH, Bar, Bars, Chart, rows_of
from launch.core.drawing.curves import chart_name, over
from launch.core.metrics import axis_of, best, course, direction, merged, metrics_of, newest, shown
from launch.core.runs import Run

MOST_CHARTS, MOST_TOLD = 12, 4
HELD_OUT = re.compile(r"(^|[^a-z])(val|valid|validation|eval|held|test)([^a-z]|$)")
LEFT_OUT = (
    "Speedup, where the time goes, accuracy and the cost of an epoch are left out: they need the records of our own "
    "trainer, with images_per_s and the like, and these runs are of a script."
)


@dataclass(frozen=True)
class Best:
    """The run with the best value of a metric."""

    metric: str
    word: str  # lowest or highest
    value: float
    run: str


@dataclass(frozen=True)
class Own:
    """Runs of scripts with at least one record, and the names of their metrics by first appearance."""

    runs: tuple[Run, ...]
    metrics: tuple[str, ...]

    @property
    def bests(self) -> list[Best]:
        """The best run for each metric with a direction(); metrics of held-out data first."""
        found = []
        for metric in sorted(self.metrics, key=lambda name: not HELD_OUT.search(name.lower())):
            values = [(value, run.name) for run in self.runs if (value := best(run.epochs, metric)) is not None]
            if values:
                pick, word = (min, "lowest") if direction(metric) == "lower" else (max, "highest")
                value, name = pick(values, key=lambda pair: pair[0])
                found.append(Best(metric, word, value, name))
        return found


def own_of(runs: Sequence[Run]) -> Own:
    """The runs with a script's metrics only.  A run that was started by hand has no settings."""
    found = [run for run in runs if (run.is_script or not run.settings) and metrics_of(run.epochs)]
    return Own(tuple(found), tuple(metrics_of(record for run in found for record in run.epochs)))


def sentences(own: Own) -> list[str]:
    """The best run by each metric."""
    bests = own.bests
    lines = [
        f"The {one.word} {one.metric} is {shown(one.value)}, by {one.run}{_of_how_many(own)}."
        for one in bests[:MOST_TOLD]
    ]
    if not bests:
        lines.append("No metric's name says which way is better, as loss and accuracy do; the table has the newest.")
    return lines


def _of_how_many(own: Own) -> str:
    return f" of {len(own.runs)} runs" if len(own.runs) > 1 else ""


def charts(own: Own) -> list[Chart | str]:
    """A chart of each metric over its counter, or with a bar for each run if it has only one value.

    Metrics with a direction() come first.
    """
    rated_first = sorted(own.metrics, key=lambda metric: direction(metric) is None)
    drawn: list[Chart | str] = [_chart(own, metric) for metric in rated_first[:MOST_CHARTS]]
    drawn.sort(key=lambda chart: isinstance(chart, Bars))  # so that line charts are side by side
    if left := rated_first[MOST_CHARTS:]:
        drawn.append(f"{len(left)} more metrics, which the table has: {', '.join(left)}.")
    return drawn


def _chart(own: Own, metric: str) -> Chart:
    axis = axis_of((record for run in own.runs for record in run.epochs), metric)
    courses = {run.name: course(run.epochs, metric, axis) for run in own.runs}
    courses = {name: places for name, places in courses.items() if places}
    name = chart_name(metric, own.metrics)
    if max(map(len, courses.values())) > 1:
        return over(name, metric, axis, courses)
    bars = [Bar(label, (places[0][1],), shown(places[0][1])) for label, places in courses.items()]
    rows, note = rows_of(bars)
    return Bars(name, metric, metric, "run", ("",), rows, note=note)


def columns_and_rows(own: Own) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The table's columns, and a row for each run: its point in the sweep, and newest and best values."""
    points = list(dict.fromkeys(name for run in own.runs for name in run.point))
    rated = [(metric, word) for metric in own.metrics if (word := _best_word(metric))]
    priced = any(run.whole_usd is not None for run in own.runs)
    columns = ("run", *points, "records", *own.metrics, *(f"{word} {metric}" for metric, word in rated),
               *(["USD"] if priced else []))  # fmt: skip
    return columns, tuple(_row(run, own, points, [metric for metric, _ in rated], priced=priced) for run in own.runs)


def _best_word(metric: str) -> str:
    return {"lower": "lowest", "higher": "highest", None: ""}[direction(metric)]


def _row(run: Run, own: Own, points: Sequence[str], rated: Sequence[str], *, priced: bool) -> tuple[str, ...]:
    last = newest(run.epochs)
    values = [
        *(last.get(metric) for metric in own.metrics), *(best(run.epochs, metric) for metric in rated),
        *([run.whole_usd] if priced else []),
    ]  # fmt: skip
    own_values = [str(run.point[name]) if name in run.point else DASH for name in points]
    return (run.name, *own_values, f"{len(merged(run.epochs)):,}", *(shown(value) or DASH for value in values))


def csv_row(run: Run) -> dict[str, Any]:
    """Cells of table.csv: newest and best value of each metric."""
    last = newest(run.epochs)
    found: dict[str, Any] = {f"metric.{name}": f"{value:.6g}" for name, value in last.items()}
    return found | {
        f"best.{name}": f"{value:.6g}" for name in last if (value := best(run.epochs, name)) is not None
    }  # fmt: skip
