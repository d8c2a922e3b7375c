"""Draws infra/examples/NAME/curve.svg, the picture on an example's page, from the metrics.jsonl of a run of it:

python -m tests.figures.examples gpt runs/gpt
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from launch.core.drawing.charts import Line, Lines, Measured
from launch.core.drawing.picture import save
from tests.conftest import ROOT

EXAMPLES = ROOT / "infra" / "examples"
# The title, the metric along the axis, and the lines with what they are called.
CHARTS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "gpt": ("A small GPT learns Python's manual", "step", {"loss": "of a step's batch", "held_loss": "held-out text"}),
    "lightning": (
        "Digits with PyTorch Lightning",
        "epoch",
        {"loss": "training loss", "accuracy": "accuracy, held out"},
    ),
    "accelerate": ("Digits with Accelerate", "epoch", {"loss": "training loss", "accuracy": "accuracy, held out"}),
}


def chart(name: str, text: str) -> Lines:
    """text: of metrics.jsonl.  Of a step that was done twice the later record counts."""
    title, along, labels = CHARTS[name]
    found: dict[str, dict[float, Measured]] = {metric: {} for metric in labels}
    for record in map(json.loads, text.splitlines()):
        for metric in labels.keys() & record.keys():
            found[metric][record[along]] = Measured(*[record[metric]] * 3)
    lines = tuple(Line(label, tuple(sorted(found[metric].items()))) for metric, label in labels.items())
    y_label = "loss (nats per letter)" if name == "gpt" else "loss; share that is right"
    return Lines("curve", title, along, y_label, lines)


if __name__ == "__main__":
    name, run = sys.argv[1:]
    save(chart(name, Path(run, "metrics.jsonl").read_text(encoding="utf-8")), EXAMPLES / name, ("svg",))
