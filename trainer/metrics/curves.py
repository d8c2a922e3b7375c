"""RUN/curves.png: loss and accuracy per epoch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Okabe and Ito's colours: told apart by colour-blind readers too.
BLUE, ORANGE = "#0072B2", "#D55E00"


def draw(records: Sequence[dict[str, Any]], title: str, path: Path) -> None:
    """Writes the picture.  records: metrics.jsonl's, in order; nothing is drawn without any."""
    if not records:
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for axes, kind, label, factor in (
        (left, "loss", "cross-entropy loss", 1),
        (right, "top1", "top-1 accuracy (%)", 100),
    ):
        for part, colour, marker in (("train", BLUE, "o"), ("eval", ORANGE, "s")):
            points = [
                (r["epoch"], r[f"{part}_{kind}"] * factor) for r in records if r.get(f"{part}_{kind}") is not None
            ]
            if points:
                shown = "training" if part == "train" else "evaluation"
                axes.plot(*zip(*points, strict=True), color=colour, marker=marker, markersize=4, label=shown)
        axes.set_xlabel("epoch")
        axes.set_ylabel(label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False)
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
