"""RUN/curves.png: loss and accuracy per epoch."""

import io
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainer.files import write_atomically
from trainer.metrics.trackers import is_number

# Okabe and Ito's colours: told apart by colour-blind readers too.
BLUE, ORANGE = "#0072B2", "#D55E00"


def draw(records: Sequence[dict[str, Any]], title: str, path: Path) -> None:
    """Writes the picture.  records: metrics.jsonl's, in order; nothing is drawn without any.  Raises OSError."""
    if not records:
        return
    # It warns at length where a container's user has no home to keep its list of fonts in.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib.figure import Figure  # without pyplot, which would look for a display

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _plot(left, records, "loss", "cross-entropy loss", factor=1)
    _plot(right, records, "top1", "top-1 accuracy (%)", factor=100)
    left.legend(frameon=False)
    figure.suptitle(title, fontsize=11)
    data = io.BytesIO()
    figure.savefig(data, dpi=150)
    write_atomically(path, data.getvalue())  # in the place of a link, never into what it leads to


def _plot(axes: Any, records: Sequence[dict[str, Any]], kind: str, label: str, factor: float) -> None:
    """Draws train_KIND and eval_KIND per epoch; epochs without an evaluation have none."""
    from matplotlib.ticker import MaxNLocator

    for part, shown, colour, marker in (("train", "training", BLUE, "o"), ("eval", "evaluation", ORANGE, "s")):
        measured = [record for record in records if _is_drawable(record.get(f"{part}_{kind}"), record["epoch"])]
        epochs = [record["epoch"] for record in measured]
        values = [record[f"{part}_{kind}"] * factor for record in measured]
        if measured:
            axes.plot(epochs, values, color=colour, marker=marker, markersize=4, label=shown)
    axes.set_xlabel("epoch")
    axes.set_ylabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _is_drawable(*values: Any) -> bool:
    """Whether all are numbers that axes can show: the file may hold anything."""
    return all(is_number(value) and abs(value) < 1e12 for value in values)
