"""Series: points that differ only in the number of GPUs; their speedups, laws, and comparisons of batches.  Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from launch.core.drawing.charts import TIMES, Measured, exactly, figure
from launch.core.estimate.laws import MISFIT, Law, amdahl, gustafson
from launch.report.points import (
    LEARNING,
    PASSES,
    SHARING,
    SPEED,
    Family,
    Point,
    final,
    in_words,
    key,
    labels,
    layout,
    median_of,
    plainly,
    shared,
    short,
    without,
)

# Strategies that may provide the run on one GPU for a family without one.
ALONE = ("single", "ddp")
Kind = Literal["weak", "strong"]
# Settings that two comparable accuracies share: the same task for the same number of epochs.
TASK = ("model", "dataset", "image_size", "init_from", "epochs", "max_steps", "augment", "synthetic_images")
TERSE = ("precision", "comm_hook", "powersgd_rank")


@dataclass(frozen=True)
class Series:
    """Points with different numbers of GPUs, in ascending order."""

    label: str
    kind: Kind  # weak: a fixed batch per GPU; strong: a fixed global batch
    batch: int
    points: tuple[Point, ...]
    base: Point  # the point of speedup 1: points[0] unless the user chose another

    def title(self, unit: str) -> str:
        return f"{self.label}, {self.batch:,} per {short(unit) if self.kind == 'weak' else 'update'}"

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(point.replicas for point in self.points)


def named(points: Sequence[Point]) -> list[Point]:
    """Label the points by their family."""
    families = {key(point.family): point.family for point in points}
    names = labels(list(families.values()))
    return [replace(point, label=names[key(point.family)]) for point in points]


def series(points: Sequence[Point], kind: Kind, baseline: Point | None = None) -> list[Series]:
    """Every series of that kind with at least two numbers of GPUs."""
    all_series = []
    for own in _groups(points, kind):
        batch = _batch(own[0], kind)
        by_count = {point.replicas: point for point in [*_borrowed(own, points, kind), *own]}
        chosen = tuple(by_count[count] for count in sorted(by_count))
        if len(chosen) > 1:
            base = baseline if baseline and _is_like(baseline, chosen[0], kind) else chosen[0]
            all_series.append(Series(_label(own), kind, batch, chosen, base))
    return all_series


def _label(own: Sequence[Point]) -> str:
    """The common label of all points but that on one GPU, or a plain one if they have none."""
    label = shared(point.label for point in own if point.replicas > 1 or len(own) == 1)
    return label or plainly(own[-1].family)


def _groups(points: Sequence[Point], kind: Kind) -> list[list[Point]]:
    """Groups of points with different numbers of GPUs and comparable work per update.

    Families that differ only in learning, or in the number of passes of an equal update, are one group, unless both
    have a point on the same number of GPUs.
    """
    families: dict[tuple[str, int], list[Point]] = {}
    for point in points:
        families.setdefault((key(point.family), _batch(point, kind)), []).append(point)
    groups: dict[tuple[str, int], list[list[Point]]] = {}
    for (_, batch), members in sorted(families.items(), key=lambda item: -len(item[1])):
        alike = groups.setdefault((key(without(members[0].family, LEARNING | PASSES)), batch), [])
        counts = {point.replicas for point in members}
        room = next((group for group in alike if not counts & {point.replicas for point in group}), None)
        if room is None:
            alike.append(list(members))
        else:
            room += members
    return [group for alike in groups.values() for group in alike]


def _is_like(baseline: Point, first: Point, kind: Kind) -> bool:
    """Whether speeds are comparable with the baseline's: the same images, network and batch."""
    names = ("model", "dataset", "image_size")
    alike = all(baseline.family.get(name) == first.family.get(name) for name in names)
    return alike and _batch(baseline, kind) == _batch(first, kind)


def scaling(points: Sequence[Point], baseline: Point | None = None) -> list[Series]:
    """Series of both kinds, those with the most numbers of GPUs first, otherwise in the order of the points."""
    both = [*series(points, "weak", baseline), *series(points, "strong", baseline)]
    order = {label: index for index, label in enumerate(dict.fromkeys(point.label for point in points))}
    return sorted(both, key=lambda one: (-len(one.points), order.get(one.label, len(order))))


def _batch(point: Point, kind: Kind) -> int:
    return point.per_gpu if kind == "weak" else point.per_update


def _borrowed(members: Sequence[Point], points: Sequence[Point], kind: Kind) -> list[Point]:
    """Points of other families that also belong in this series; members take precedence.

    These are a run on one GPU with another strategy, and, if the members are distinguished by their layout, points of
    that layout in families that are not.
    """
    first = members[0]
    others = [point for point in points if _batch(point, kind) == _batch(first, kind) and point not in members]
    alone = [point for point in others if point.replicas == 1 and point.family.get("strategy") in ALONE]
    laid_out = [point for point in others if layout(point.replicas, point.nodes) == first.family.get("layout")]
    return [
        *_alike(alone[::-1], first, LEARNING | SHARING),
        *_alike(laid_out, first, LEARNING | {"layout"}),
    ]


def _alike(points: Sequence[Point], first: Point, but_for: frozenset[str]) -> list[Point]:
    """The points of the same family as `first`, ignoring some settings."""
    same = key(without(first.family, but_for))
    return [point for point in points if key(without(point.family, but_for)) == same]


def speedup(point: Point, base: Point) -> Measured | None:
    """Images/s over those of one GPU of `base`; the range includes that of `base`."""
    if point.images_per_s is None or base.images_per_s is None or not base.images_per_s.low:
        return None
    if point is base:
        return exactly(base.replicas)
    return point.images_per_s / base.images_per_s * base.replicas


def efficiency(point: Point, base: Point) -> Measured | None:
    """The speedup's share of the ideal, in %."""
    fast = speedup(point, base)
    return fast * (100 / point.replicas) if fast else None


def law_of(one: Series) -> Law | None:
    """The law fitted to the images/s of `one`; None if too few points have them."""
    speeds = [(p.replicas, p.images_per_s.value) for p in one.points if p.images_per_s and p.images_per_s.value]
    return gustafson(speeds) if one.kind == "weak" else amdahl([(count, 1 / speed) for count, speed in speeds])


def limit(law: Law) -> float | None:
    """The speedup that no number of GPUs exceeds; None if the law has none or does not describe the speeds."""
    return law.limit if law.name == "Amdahl" and law.describes else None


def sentence(law: Law, unit: str, least: int = 1) -> str:
    """The law and its fit in words.  least: the smallest measured number of GPUs."""
    if not law.describes:
        is_far = law.worst > MISFIT
        why = f"it is off by up to {law.worst:.0%}" if is_far else "more was measured than it would allow"
        return (
            f"{law.name}'s law does not describe these speeds: {why}, so that nothing follows for more {unit}s than "
            "were measured."
        )
    text = f"{law.name}'s law{_serial_part(law, unit)}"
    one = "" if least == 1 else f"; one {unit} alone was not measured"
    if law.is_checked:
        return f"{text} (fitted to {law.counts} numbers of {unit}s, off by at most {law.worst:.1%}{one})."
    return f"{text} (a curve through two numbers of {unit}s always fits, so this is not checked{one})."


def _serial_part(law: Law, unit: str) -> str:
    if law.serial == 0:
        return " finds no serial part: it scales ideally, or better"
    if math.isclose(law.serial, 1):
        return " finds no parallel part: more of them do not help"
    if law.name == "Amdahl":
        return (
            f": {law.serial:.1%} of the work is serial, so no number of {unit}s is more than "
            f"{figure(law.limit)}{TIMES} as fast as one"
        )
    return (
        f": each further {unit} adds {1 - law.serial:.1%} of one's images/s, as far as was measured; with a fixed "
        "batch for each the law has no ceiling"
    )


@dataclass(frozen=True)
class Trial:
    """A recipe at a global batch."""

    recipe: str
    per_update: int
    accuracy: Measured  # final, in %
    gap: float  # percentage points above the baseline, negative below
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Comparison:
    """Trials of one task, the baseline first; recipes in the order of their first run."""

    task: str
    baseline: Trial
    trials: tuple[Trial, ...]


def compare(points: Sequence[Point], baseline: Point | None = None) -> Comparison | None:
    """Compare the task with the most trials; None unless it has two global batches, or two recipes.

    baseline: by default the best of the smallest global batch.
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
    """The points of the baseline's task, or of the task with the most points."""
    tasks: dict[str, list[Point]] = {}
    for point in scored:
        tasks.setdefault(_task(point.family), []).append(point)
    return tasks[_task(baseline.family)] if baseline else max(tasks.values(), key=len)


def _is_alike(point: Point, first: Point) -> bool:
    """Whether both have the same settings that trade accuracy for fewer bytes."""
    return all(point.family.get(name) == first.family.get(name) for name in TERSE)


def _by_recipe(points: Sequence[Point]) -> dict[tuple[str, int], list[Point]]:
    """Group the points by recipe and global batch."""
    differ = _differing(points)
    groups: dict[tuple[str, int], list[Point]] = {}
    for point in points:
        groups.setdefault((recipe(point.family, differ), point.per_update), []).append(point)
    return groups


def _trials(groups: Mapping[tuple[str, int], Sequence[Point]], first: Point) -> tuple[Trial, ...]:
    """A trial per group, that of the baseline `first` before the others."""
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
    """The settings of learning that differ among `points`, without the optimizer."""
    learns = [without(point.family, {*SPEED, *TASK, *TERSE, "strategy"}) for point in points]
    names = sorted({name for one in learns for name in one} - {"optimizer"})
    return [name for name in names if len({str(one.get(name)) for one in learns}) > 1]


def _task(of_one: Family) -> str:
    return key({name: of_one.get(name) for name in TASK})


def _accuracy(points: Sequence[Point]) -> Measured:
    """The accuracy over all runs of `points`, in %."""
    accuracy = median_of(final(run, "eval_top1") for point in points for run in point.runs)
    assert accuracy is not None  # only points with an accuracy get here
    return accuracy * 100
