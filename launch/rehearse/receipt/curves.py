"""What a rehearsed training learnt, for its receipt: our trainer's loss and accuracy, or a script's metrics.  Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from launch.core.drawing.charts import Line as Curve
from launch.core.drawing.charts import Lines, exactly
from launch.core.metrics import AXES, axis_of, course, merged, metrics_of, shown

if TYPE_CHECKING:
    from launch.rehearse.stage.recording import Epoch

REPLAYED = {"epoch": "{:.0f}", "train_loss": "{:.4f}", "images_per_s": "{:,.0f}"}  # figures of an epoch
# Name and label of each chart, the ending of its metrics' names, and the factor to its unit.
CHARTS = (("Loss", "cross-entropy (nats)", "loss", 1.0), ("Accuracy", "accuracy (%)", "top1", 100.0))
MOST_CHARTS, MOST_ROWS = 8, 200  # of a script


def is_of_script(epochs: Sequence[Epoch]) -> bool:
    """Whether none of the records has figures of our trainer, but some have others."""
    return not any(epoch.is_ours for epoch in epochs) and bool(metrics_of(epoch.values for epoch in epochs))


def by_number(epochs: Sequence[Epoch]) -> list[Epoch]:
    """Each epoch once: the last record of one that was trained again after a fault."""
    return [epoch for _, epoch in sorted({epoch.number: epoch for epoch in epochs}.items())]


def charts(epochs: Sequence[Epoch]) -> list[Lines]:
    """Loss and accuracy over the epochs, or each metric of a script; only those with figures."""
    if is_of_script(epochs):
        return _own_charts(epochs)
    drawn = []
    for name, label, ending, factor in CHARTS:
        curves = [
            _curve("training", f"train_{ending}", factor, epochs),
            _curve("test", f"eval_{ending}", factor, epochs),
        ]
        if lines := tuple(curve for curve in curves if curve.points):
            drawn.append(Lines(ending, f"{name} by epoch", "epoch", label, lines))
    return drawn


def _curve(label: str, name: str, factor: float, epochs: Sequence[Epoch]) -> Curve:
    values = [(epoch.number, epoch.values.get(name, math.nan) * factor) for epoch in by_number(epochs)]
    return Curve(label, tuple((float(number), exactly(value)) for number, value in values if math.isfinite(value)))


def _own_charts(epochs: Sequence[Epoch]) -> list[Lines]:
    """A script's metrics over what its records are counted by; of those that came once there is nothing to draw."""
    records, drawn = [epoch.values for epoch in epochs], []
    for name in metrics_of(records):
        axis = axis_of(records, name)
        places = tuple((x, exactly(y)) for x, y in course(records, name, axis))
        if len(places) > 1:
            counted = axis or "record"
            drawn.append(Lines(name, f"{name} by {counted}", counted, name, (Curve("", places),)))
    return drawn[:MOST_CHARTS]


def own_table(epochs: Sequence[Epoch]) -> tuple[list[str], list[list[str]]] | None:
    """The columns and the newest rows of a script's metrics; None where the records are our trainer's."""
    if not is_of_script(epochs):
        return None
    records = merged(epoch.values for epoch in epochs)
    columns = [*(axis for axis in AXES if any(axis in record for record in records)), *metrics_of(records)]
    return columns, [[shown(record.get(name)) for name in columns] for record in records[-MOST_ROWS:]]


def replayed(epoch: Epoch) -> list[str]:
    """An epoch's figures for the replay: its number, loss and images per second; empty where there are none."""
    if epoch.is_ours:
        return [epoch.formatted(name, template) for name, template in REPLAYED.items()]
    return [str(epoch.number), epoch.formatted("loss", "{:.4g}"), ""]
