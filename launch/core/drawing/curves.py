"""Charts of a training's records: loss, accuracy, speed and step times, or a script's own metrics.  Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from launch.core.drawing.charts import Line, Lines, exactly, lines_of
from launch.core.metrics import Record, axis_of, course, is_of_script, metrics_of

METRIC = "metric_"  # before the name of a chart of a script's metric
MAX_CHARTS, MAX_POINTS = 8, 400
LEAST = 1e-9  # smallest value on a logarithmic axis
LOG_FROM = 100.0  # ratio of highest to lowest value from which the axis is logarithmic

Places = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Curves:
    """A chart of fields of the trainer's records."""

    name: str
    title: str
    y_label: str
    fields: Mapping[str, str]  # label of a line -> field
    factor: float = 1.0  # from the fields' unit to the chart's


STEP = ("data wait", "forward", "backward", "communication", "optimizer")
LEARNING = (
    Curves("loss", "Loss by epoch", "cross-entropy (nats)", {"training": "train_loss", "test": "eval_loss"}),
    Curves("top1", "Accuracy by epoch", "accuracy (%)", {"training": "train_top1", "test": "eval_top1"}, 100.0),
)
SPEED = (
    Curves("speed", "Speed by epoch", "images per second", {"": "images_per_s"}),
    Curves("step", "Parts of an update", "time (ms)", {part: f"{part.replace(' ', '_')}_ms" for part in STEP}),
)


def curves(records: Sequence[Record]) -> list[Lines]:
    """What is learnt and how fast; only charts with figures.  records: lines of metrics.jsonl."""
    return learning(records) if is_of_script(records) else [*learning(records), *_of_trainer(records, SPEED)]


def learning(records: Sequence[Record]) -> list[Lines]:
    """Loss and accuracy by epoch, or each metric of a script; only charts with figures."""
    return _of_script(records) if is_of_script(records) else _of_trainer(records, LEARNING)


def _of_trainer(records: Sequence[Record], charts: Iterable[Curves]) -> list[Lines]:
    drawn = []
    for chart in charts:
        lines = [_line(label, _course(records, name), chart.factor) for label, name in chart.fields.items()]
        if known := tuple(line for line in lines if line.points):
            drawn.append(Lines(chart.name, chart.title, "epoch", chart.y_label, known))
    return drawn


def _course(records: Sequence[Record], name: str) -> Places:
    return course(records, name, axis_of(records, name))


def _of_script(records: Sequence[Record]) -> list[Lines]:
    """A chart for each metric with several values."""
    names = metrics_of(records)
    places = {name: _course(records, name) for name in names}
    return [
        over(chart_name(name, names), name, axis_of(records, name), {"": places[name]})
        for name in names if len(places[name]) > 1
    ][:MAX_CHARTS]  # fmt: skip


def over(name: str, metric: str, axis: str, courses: Mapping[str, Places]) -> Lines:
    """A chart of a metric over the counter `axis`, or over the records if that is empty, with a line for each course.

    courses: by the label of the line, none of them empty.
    """
    counted = axis or "record"
    drawn, note = lines_of([_line(label, _thinned(places)) for label, places in courses.items()])
    values = [y for places in courses.values() for _, y in places]
    is_log = min(values) >= LEAST and max(values) >= LOG_FROM * min(values)
    return Lines(name, f"{metric} by {counted}", counted, metric, drawn, is_log_y=is_log, note=note)


def _line(label: str, places: Places, factor: float = 1.0) -> Line:
    return Line(label, tuple((x, exactly(y * factor)) for x, y in places))


def _thinned(places: Places) -> Places:
    """Reduce to as many points as a picture can show, including the last."""
    step = -(-len(places) // MAX_POINTS)
    return [*places[:-1:step], places[-1]]


def chart_name(metric: str, metrics: Sequence[str]) -> str:
    """The name of a metric's chart and file, distinct for train_loss and train/loss.  metrics: all of them."""
    alike = [other for other in metrics if _letters(other) == _letters(metric)]
    index = alike.index(metric)
    return f"{METRIC}{_letters(metric)}{f'_{index + 1}' if index else ''}"


def _letters(metric: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", metric.lower()).strip("_")
