"""What large batches cost in accuracy, and what the remedies give back.  Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from launch.core.drawing.charts import Measured
from launch.report.identity import SPEED, Family, key, said, without
from launch.report.points import Point, final, of

# What makes two accuracies comparable: the same task for the same number of epochs.
TASK = ("model", "dataset", "image_size", "init_from", "epochs", "max_steps", "augment", "synthetic_images")
TERSE = ("precision", "comm_hook", "powersgd_rank")


@dataclass(frozen=True)
class Trial:
    """A recipe at a global batch.  accuracy: final, in %; gap: its points above the baseline, negative below."""

    recipe: str
    per_update: int
    accuracy: Measured
    gap: float
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Comparison:
    """Trials of one task, the baseline first; recipes in the order of their first run."""

    task: str
    baseline: Trial
    trials: tuple[Trial, ...]


def compare(points: Sequence[Point], baseline: Point | None = None) -> Comparison | None:
    """The task with the most trials; None unless it was tried with two global batches, or two recipes.

    baseline: what the others are compared with; none: the best of the smallest global batch.
    """
    scored = [point for point in points if point.ended_with("eval_top1")]
    if baseline and baseline not in scored:
        baseline = None
    tasks: dict[str, list[Point]] = {}
    for point in scored:
        tasks.setdefault(_task(point.family), []).append(point)
    if not tasks:
        return None
    members = tasks[_task(baseline.family)] if baseline else max(tasks.values(), key=len)
    first = baseline or min(members, key=lambda point: (point.per_update, -_accuracy([point]).value))
    plain = [point for point in members if all(point.family.get(n) == first.family.get(n) for n in TERSE)]
    groups: dict[tuple[str, int], list[Point]] = {}
    differ = _differing(plain)
    for point in plain:
        groups.setdefault((recipe(point.family, differ), point.per_update), []).append(point)
    if len(groups) < 2:
        return None
    zero = next(_accuracy(group).value for group in groups.values() if first in group)
    trials = [
        Trial(name, batch, accuracy := _accuracy(group), accuracy.value - zero, tuple(group))
        for (name, batch), group in groups.items()
    ]
    zeroth = next(trial for trial in trials if first in trial.points)
    task = f"{first.family['model']} on {first.family['dataset']}"
    return Comparison(task, zeroth, (zeroth, *(trial for trial in trials if trial is not zeroth)))


def recipe(of_one: Family, differ: Iterable[str]) -> str:
    """The optimizer, and the settings that `differ` among those compared."""
    parts = [str(of_one.get("optimizer", "sgd")), *(said(name, of_one.get(name)) for name in differ)]
    return ", ".join(part for part in parts if part)


def _differing(points: Iterable[Point]) -> list[str]:
    """Of the settings that change what is learnt, those that are not the same in all `points`; not the optimizer."""
    learns = [without(point.family, {*SPEED, *TASK, *TERSE, "strategy"}) for point in points]
    names = sorted({name for one in learns for name in one} - {"optimizer"})
    return [name for name in names if len({str(one.get(name)) for one in learns}) > 1]


def _task(of_one: Family) -> str:
    return key({name: of_one.get(name) for name in TASK})


def _accuracy(points: Sequence[Point]) -> Measured:
    """Over all runs of `points`, in %."""
    found = of(final(run, "eval_top1") for point in points for run in point.runs)
    assert found is not None  # only points with an accuracy get here
    return found * 100
