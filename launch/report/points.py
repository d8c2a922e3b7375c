"""Points: runs of the same family on the same GPUs with the same batch, and what was measured of them.  Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from statistics import median
from typing import Any

from launch.core.drawing.charts import Measured, exactly
from launch.core.runs import Run, number
from launch.report.identity import Family, family, key

SPREAD_FROM = 3  # epochs: of fewer, the range says nothing


@dataclass(frozen=True)
class Point:
    """runs: repetitions.  per_update: the global batch, of a ramp its largest; per_gpu: its share of one GPU."""

    family: Family
    replicas: int
    nodes: int
    per_update: int
    runs: tuple[Run, ...]
    label: str = ""

    @property
    def per_gpu(self) -> int:
        return self.per_update // self.replicas

    @cached_property
    def images_per_s(self) -> Measured | None:
        return self.measured("images_per_s")

    def measured(self, name: str) -> Measured | None:
        """A number of the steady epochs: over repetitions the range of their medians, of one run that of its epochs."""
        if len(self.runs) > 1:
            return of([run.typical(name) for run in self.runs])
        (run,) = self.runs
        found = of(number(epoch, name) for epoch in run.steady)
        return found if found is None or len(run.epochs) >= SPREAD_FROM else exactly(found.value)

    def ended_with(self, name: str) -> Measured | None:
        """The last value of each run that came to its end."""
        return of([final(run, name) for run in self.runs])


def of(values: Iterable[float | None]) -> Measured | None:
    """None where there are no values."""
    known = [value for value in values if value is not None]
    return Measured(median(known), min(known), max(known)) if known else None


def newest(run: Run, name: str) -> float | None:
    """The value of the last epoch that has one; evaluations may be rarer than epochs."""
    return next((value for epoch in reversed(run.epochs) if (value := number(epoch, name)) is not None), None)


def final(run: Run, name: str) -> float | None:
    """The same of a run that came to its end: of one that did not, it says nothing of what would have been."""
    wanted = 0 if run.settings.get("max_steps") else int(run.settings.get("epochs") or 0)
    return newest(run, name) if run.state == "done" and len(run.epochs) >= wanted else None


def per_update(run: Run) -> int:
    """The global batch, of a ramp the largest; 0 where no epoch says."""
    return max((int(number(epoch, "global_batch") or 0) for epoch in run.epochs), default=0)


def is_measured(run: Run) -> bool:
    """Whether it has numbers: on how many GPUs, with which batch, how fast."""
    return bool(run.epochs and run.replicas and per_update(run) and run.typical("images_per_s"))


def points(runs: Iterable[Run]) -> list[Point]:
    """One for each family, number of GPUs and batch; families with the most points first.  Unnamed yet."""
    measured = [run for run in runs if is_measured(run)]
    found: dict[Any, Point] = {}
    for run, belongs in zip(measured, _families(measured), strict=True):
        nodes = int(number(run.last, "nodes") or 1)
        place = (key(belongs), run.replicas, nodes, per_update(run))
        earlier = found[place].runs if place in found else ()
        found[place] = Point(belongs, run.replicas, nodes, per_update(run), (*earlier, run))
    many = Counter(key(point.family) for point in found.values())
    first = {belongs: place for place, belongs in enumerate(many)}
    return sorted(
        found.values(),
        key=lambda p: (-many[key(p.family)], first[key(p.family)], p.per_gpu, p.replicas, p.nodes),
    )


def _families(runs: Sequence[Run]) -> list[Family]:
    """Of each run; with where its GPUs stand, if the same number was tried on one node and on several."""
    families = [family(run) for run in runs]
    places: dict[tuple[str, int], set[int]] = {}
    for run, belongs in zip(runs, families, strict=True):
        places.setdefault((key(belongs), run.replicas), set()).add(int(number(run.last, "nodes") or 1))
    split = {belongs for (belongs, _), nodes in places.items() if len(nodes) > 1}
    return [
        {**belongs, "layout": f"{run.replicas // nodes} per node"}
        if key(belongs) in split and (nodes := int(number(run.last, "nodes") or 1)) > 1
        else belongs
        for run, belongs in zip(runs, families, strict=True)
    ]


def seconds_of(epoch: Mapping[str, Any]) -> float:
    """Of training and evaluation."""
    return (number(epoch, "epoch_s") or 0.0) + (number(epoch, "eval_s") or 0.0)


def accuracy_over(run: Run) -> list[tuple[float, float, float]]:
    """(seconds since the first epoch began, epoch, accuracy in %) after each evaluation."""
    ends = accumulate(seconds_of(epoch) for epoch in run.epochs)
    return [
        (end, number(epoch, "epoch") or place, 100 * accuracy)
        for place, (end, epoch) in enumerate(zip(ends, run.epochs, strict=True), 1)
        if (accuracy := number(epoch, "eval_top1")) is not None
    ]
