"""Points: runs of the same family on the same GPUs with the same batch, and what was measured.  Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from statistics import median
from typing import Any

from launch.core.drawing.charts import Measured, exactly
from launch.core.run import Run, number, seconds_of
from launch.report.identity import Family, family, key
from launch.report.repeats import median_of

SPREAD_FROM = 3  # epochs: of fewer, the range says nothing


@dataclass(frozen=True)
class Point:
    """runs: repetitions.  per_update: the global batch, of a ramp its last; per_gpu: its share of one GPU."""

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
        """A number of the steady epochs: over repetitions the interval of their medians, of one run its epochs'."""
        if len(self.runs) > 1:
            return median_of(run.typical(name) for run in self.runs)
        (run,) = self.runs
        value = of(number(epoch, name) for epoch in run.steady)
        if value is None or len(run.epochs) >= SPREAD_FROM:
            return value
        return exactly(value.value)

    def ended_with(self, name: str) -> Measured | None:
        """The last value of each run that came to its end."""
        return median_of(final(run, name) for run in self.runs)


def of(values: Iterable[float | None]) -> Measured | None:
    """None where there are no values."""
    known = [value for value in values if value is not None]
    return Measured(median(known), min(known), max(known)) if known else None


def newest(run: Run, name: str) -> float | None:
    """The value of the last epoch that has one; evaluations may be rarer than epochs."""
    return next((value for epoch in reversed(run.epochs) if (value := number(epoch, name)) is not None), None)


def final(run: Run, name: str) -> float | None:
    """The value at the end of a run that is done; None for one that is not, whose end is unknown."""
    wanted = 0 if run.settings.get("max_steps") else number(run.settings, "epochs") or 0
    return newest(run, name) if run.state == "done" and len(run.epochs) >= wanted else None


def per_update(run: Run) -> int:
    """The global batch, of a ramp the last one; 0 where no epoch says."""
    return int(number(run.last, "global_batch") or 0)


def is_measured(run: Run) -> bool:
    """Whether it has numbers: on how many GPUs, with which batch, how fast."""
    return bool(run.epochs and run.replicas and per_update(run) and run.typical("images_per_s"))


def points(runs: Iterable[Run]) -> list[Point]:
    """One for each family, number of GPUs and batch; families with the most points first.  Without labels."""
    measured = [run for run in runs if is_measured(run)]
    groups: dict[tuple[Any, ...], Point] = {}
    for run, own in zip(measured, _families(measured), strict=True):
        nodes = _nodes(run)
        place = (key(own), run.replicas, nodes, per_update(run))
        earlier = groups[place].runs if place in groups else ()
        groups[place] = Point(own, run.replicas, nodes, per_update(run), (*earlier, run))
    sizes = Counter(key(point.family) for point in groups.values())
    order = {name: place for place, name in enumerate(sizes)}

    def rank(point: Point) -> tuple[int, ...]:
        name = key(point.family)
        return (-sizes[name], order[name], point.per_gpu, point.replicas, point.nodes)

    return sorted(groups.values(), key=rank)


def _families(runs: Sequence[Run]) -> list[Family]:
    """The family of each run; with its layout, where the same number of GPUs was tried on fewer nodes as well."""
    families = [family(run) for run in runs]
    fewest: dict[tuple[str, int], int] = {}
    for run, own in zip(runs, families, strict=True):
        place = (key(own), run.replicas)
        fewest[place] = min(_nodes(run), fewest.get(place, _nodes(run)))
    return [
        {**own, "layout": layout(run.replicas, _nodes(run))} if _nodes(run) > fewest[key(own), run.replicas] else own
        for run, own in zip(runs, families, strict=True)
    ]


def layout(replicas: int, nodes: int) -> str:
    """(8, 2) -> '4 per node'."""
    return f"{replicas // nodes} per node"


def _nodes(run: Run) -> int:
    return max(1, int(number(run.last, "nodes") or 1))


def accuracy_over(run: Run) -> list[tuple[float, float, float]]:
    """(seconds since the first epoch began, epoch, accuracy in %) after each evaluation."""
    ends = accumulate(seconds_of(epoch) for epoch in run.epochs)
    return [
        (end, number(epoch, "epoch") or place, 100 * accuracy)
        for place, (end, epoch) in enumerate(zip(ends, run.epochs, strict=True), 1)
        if (accuracy := number(epoch, "eval_top1")) is not None
    ]
