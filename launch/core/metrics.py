"""Metrics of a user's own script, with any names: ordering, merging, comparing and showing its records.  Pure.

The built-in trainer's records, see trainer/README.md, have more fields; launch.core.runs reads those.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

Record = Mapping[str, Any]
Place = tuple[float | None, ...]

# What records are counted by: the first that they have.
AXES = ("step", "global_step", "iteration", "epoch")
# Fields for the progress of the training, see trainer.script.pace.  They are no results.
TOTALS = ("steps", "epochs", "progress")
# Figures that only the built-in trainer's records have, not a script's.
TRAINER_FIGURES = ("train_loss", "train_top1", "eval_loss", "eval_top1", "images_per_s")
# Words in a name that say which way is better.
LOWER = {"loss", "error", "err", "perplexity", "ppl", "nll", "mse", "rmse", "mae", "wer", "cer", "fid", "regret"}
HIGHER = {"accuracy", "acc", "top1", "top5", "f1", "auc", "auroc", "bleu", "rouge", "recall", "precision", "map",
          "iou", "dice", "r2", "score", "reward", "psnr", "ssim"}  # fmt: skip
NAME = r"[A-Za-z_][\w./-]{0,39}"
MOST = 8  # metrics in a line


def values_of(record: Record) -> dict[str, float]:
    """The numbers of a record by name, without other values and without names that are not safe to show."""
    return {
        name: value for name, value in record.items()
        if isinstance(name, str) and re.fullmatch(NAME, name) and type(value) in (int, float) and math.isfinite(value)
    }  # fmt: skip


def _value(record: Record, name: str) -> float | None:
    """One of values_of(record), by a name that is known to be safe to show."""
    value: Any = record.get(name)
    return value if type(value) in (int, float) and math.isfinite(value) else None


def place_of(record: Record) -> Place | None:
    """The record's place in the training; None if it has none."""
    place = tuple(_value(record, name) for name in AXES)
    return None if place == (None,) * len(AXES) else place


def merged(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Merge records of the same place: a step that was repeated after a restart counts once, with its last values.

    Ordered by the first record of each place.
    """
    found: dict[object, dict[str, Any]] = {}
    for number, record in enumerate(records):
        found.setdefault(place_of(record) or number, {}).update(record)
    return list(found.values())


def metrics_of(records: Iterable[Record]) -> list[str]:
    """The names of the metrics in order of first appearance, without the fields that give the place."""
    names: dict[str, None] = {}
    for record in records:
        names |= dict.fromkeys(values_of(record))
    return [name for name in names if name not in AXES + TOTALS]


def is_of_script(records: Iterable[Record]) -> bool:
    """Whether none of the records has figures of the built-in trainer, but some have others."""
    known = list(records)
    ours = any(name in record for record in known for name in TRAINER_FIGURES)
    return not ours and bool(metrics_of(known))


def newest(records: Sequence[Record]) -> dict[str, float]:
    """The newest value of each name, starting with the fields that give the place."""
    found: dict[str, float] = {}
    for record in records:
        found |= values_of(record)
    return {name: found[name] for name in sorted(found, key=lambda name: name not in AXES + TOTALS)}


def direction(name: str) -> Literal["lower", "higher"] | None:
    """Which way is better, judging by the name of a metric; None if the name does not show it."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    for word in reversed(words):  # val_error_score is a score
        if word in LOWER:
            return "lower"
        if word in HIGHER:
            return "higher"
    return None


def best(records: Iterable[Record], name: str) -> float | None:
    """The best value of a metric; None if there is none, or direction() is None."""
    way = direction(name)
    if way is None:
        return None
    values = [value for record in records if (value := _value(record, name)) is not None]
    if not values:
        return None
    return min(values) if way == "lower" else max(values)


def axis_of(records: Iterable[Record], name: str) -> str:
    """The counter that most records with this metric have, such as step; empty if none has any."""
    own = [record for record in records if _value(record, name) is not None]
    counts = {axis: sum(_value(record, axis) is not None for record in own) for axis in AXES}
    most = max(counts.values(), default=0)
    return next((axis for axis in AXES if most and counts[axis] == most), "")


def course(records: Iterable[Record], name: str, axis: str) -> list[tuple[float, float]]:
    """A metric over the counter `axis`, or over the records' number if that is empty: (x, y), ordered by x.

    The last of several values at one x counts.
    """
    own = [(record, value) for record in records if (value := _value(record, name)) is not None]
    found: dict[float, float] = {}
    for place, (record, value) in enumerate(own, 1):
        x = _value(record, axis) if axis else place
        if x is not None:
            found[x] = value
    return sorted(found.items())


def in_words(values: Mapping[str, float]) -> str:
    """'step 40, loss 0.25, accuracy 0.91'; the first few where there are many."""
    known = list(values_of(values).items())
    more = f", and {len(known) - MOST} more" if len(known) > MOST else ""
    return ", ".join(f"{name} {shown(value)}" for name, value in known[:MOST]) + more


def shown(value: float | None) -> str:
    """A whole number as it is, another with four figures; empty for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e9 else f"{value:.4g}"
