"""The records of a script of the user's own: any names and numbers.  How they are counted, told and compared.  Pure.

Our trainer's records, which trainer/README.md describes, have more to them; launch.core.runs reads those.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

Record = Mapping[str, Any]
Place = tuple[float | None, ...]

# What records are counted by: of those that they have, the first.
AXES = ("step", "global_step", "iteration", "epoch")
# What is told with them to say how far the training is: see trainer.script.pace.  It is no result.
TOTALS = ("steps", "epochs", "progress")
# Words in a name that say which way is better.
LOWER = {"loss", "error", "err", "perplexity", "ppl", "nll", "mse", "rmse", "mae", "wer", "cer", "fid", "regret"}
HIGHER = {"accuracy", "acc", "top1", "top5", "f1", "auc", "auroc", "bleu", "rouge", "recall", "precision", "map",
          "iou", "dice", "r2", "score", "reward", "psnr", "ssim"}  # fmt: skip
NAME = r"[A-Za-z_][\w./-]{0,39}"
LARGEST = 1e15
MOST = 8  # metrics in a line


def values_of(record: Record) -> dict[str, float]:
    """The numbers of a record by their names; what is no number, or no name that is safe to show, is left out."""
    return {
        name: value for name, value in record.items()
        if isinstance(name, str) and re.fullmatch(NAME, name) and type(value) in (int, float) and abs(value) < LARGEST
    }  # fmt: skip


def _value(record: Record, name: str) -> float | None:
    """One of values_of(record), by a name that is known to be safe to show."""
    value: Any = record.get(name)
    return value if type(value) in (int, float) and abs(value) < LARGEST else None


def place_of(record: Record) -> Place | None:
    """Where in the training a record belongs; None where it does not say."""
    place = tuple(_value(record, name) for name in AXES)
    return None if place == (None,) * len(AXES) else place


def merged(records: Iterable[Record]) -> list[dict[str, Any]]:
    """The records, those of one place as one: a step that was done again after a restart counts once, as it was last.

    In the order in which their places came first.
    """
    found: dict[object, dict[str, Any]] = {}
    for number, record in enumerate(records):
        found.setdefault(place_of(record) or number, {}).update(record)
    return list(found.values())


def metrics_of(records: Iterable[Record]) -> list[str]:
    """The names of the metrics, in the order in which they came first; not what says where in the training they are."""
    names: dict[str, None] = {}
    for record in records:
        names |= dict.fromkeys(values_of(record))
    return [name for name in names if name not in AXES + TOTALS]


def newest(records: Sequence[Record]) -> dict[str, float]:
    """The newest value of each name, those that say where in the training it is first."""
    found: dict[str, float] = {}
    for record in records:
        found |= values_of(record)
    return {name: found[name] for name in sorted(found, key=lambda name: name not in AXES + TOTALS)}


def direction(name: str) -> Literal["lower", "higher"] | None:
    """Which way is better, where the name of a metric says it; None where it does not."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    for word in reversed(words):  # val_error_score is a score
        if word in LOWER:
            return "lower"
        if word in HIGHER:
            return "higher"
    return None


def best(records: Iterable[Record], name: str) -> float | None:
    """The best value of a metric; None where there is none, or its name does not say which way is better."""
    way = direction(name)
    if way is None:
        return None
    values = [value for record in records if (value := _value(record, name)) is not None]
    if not values:
        return None
    return min(values) if way == "lower" else max(values)


def axis_of(records: Iterable[Record], name: str) -> str:
    """The field that counts most of the records with this metric, such as step; empty where they have none."""
    own = [record for record in records if _value(record, name) is not None]
    counts = {axis: sum(_value(record, axis) is not None for record in own) for axis in AXES}
    most = max(counts.values(), default=0)
    return next((axis for axis in AXES if most and counts[axis] == most), "")


def course(records: Iterable[Record], name: str, axis: str) -> list[tuple[float, float]]:
    """A metric over what its records are counted by, where `axis` is empty over their number: (x, y), ordered by x.

    Of several values at one x the last counts.
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
