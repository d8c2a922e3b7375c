"""The accuracy that large batches cost, and that remedies restore.  Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from launch.core.drawing.charts import Measured
from launch.report.identity import SPEED, Family, in_words, key, without
from launch.report.points import Point, final
from launch.report.repeats import median_of

# Settings that two comparable accuracies share: the same task for the same number of epochs.
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

    baseline: what the others are compared with; by default the best of the smallest global batch.
    """
    scored = [point for point in points if point.ended_with("eval_top1")]
    if not scored:
        return None
    first = baseline if baseline in scored else None
    members = _of_one_task(scored, first)
    if first is None:
        first = min(members, key=lambda point: (point.per_update, -_accuracy([point]).value))
    groups = _by_recipe([point for point in members if _is_alike(point, first)])
    if len(groups) < 2:
        return None
    trials = _trials(groups, first)
    return Comparison(f"{first.family['model']} on {first.family['dataset']}", trials[0], trials)


def _of_one_task(scored: Sequence[Point], baseline: Point | None) -> list[Point]:
    """The points of the baseline's task, or of the one with the most points."""
    tasks: dict[str, list[Point]] = {}
    for point in scored:
        tasks.setdefault(_task(point.family), []).append(point)
    return tasks[_task(baseline.family)] if baseline else max(tasks.values(), key=len)


def _is_alike(point: Point, first: Point) -> bool:
    """Whether what lowers accuracy to save bytes is the same in both."""
    return all(point.family.get(name) == first.family.get(name) for name in TERSE)


def _by_recipe(points: Sequence[Point]) -> dict[tuple[str, int], list[Point]]:
    """The points of each recipe and global batch."""
    differ = _differing(points)
    groups: dict[tuple[str, int], list[Point]] = {}
    for point in points:
        groups.setdefault((recipe(point.family, differ), point.per_update), []).append(point)
    return groups


def _trials(groups: Mapping[tuple[str, int], Sequence[Point]], first: Point) -> tuple[Trial, ...]:
    """A trial per group; that of `first`, the baseline, before the others."""
    baseline = next(group for group in groups.values() if first in group)
    zero = _accuracy(baseline).value
    trials = []
    for (name, batch), group in groups.items():
        accuracy = _accuracy(group)
        trials.append(Trial(name, batch, accuracy, accuracy.value - zero, tuple(group)))
    return tuple(sorted(trials, key=lambda trial: first not in trial.points))


def recipe(of_one: Family, differ: Iterable[str]) -> str:
    """The optimizer, and the settings that `differ` among those compared."""
    parts = [str(of_one.get("optimizer", "sgd")), *(in_words(name, of_one.get(name)) for name in differ)]
    return ", ".join(part for part in parts if part)


def _differing(points: Sequence[Point]) -> list[str]:
    """Of the settings that change what is learnt, those that are not the same in all `points`; not the optimizer."""
    learns = [without(point.family, {*SPEED, *TASK, *TERSE, "strategy"}) for point in points]
    names = sorted({name for one in learns for name in one} - {"optimizer"})
    return [name for name in names if len({str(one.get(name)) for one in learns}) > 1]


def _task(of_one: Family) -> str:
    return key({name: of_one.get(name) for name in TASK})


def _accuracy(points: Sequence[Point]) -> Measured:
    """Over all runs of `points`, in %."""
    accuracy = median_of(final(run, "eval_top1") for point in points for run in point.runs)
    assert accuracy is not None  # only points with an accuracy get here
    return accuracy * 100
