"""Series: points that differ in the number of GPUs only, with their baseline.  Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from launch.core.drawing.charts import Measured
from launch.report.identity import SHARING, key, labels, short, without
from launch.report.points import Point

# Strategies whose run on one GPU may stand in for a family without one.
ALONE = ("single", "ddp")
Kind = Literal["weak", "strong"]


@dataclass(frozen=True)
class Series:
    """Points by number of GPUs, all different.  kind: weak where each GPU's batch stays, strong where the sum does.

    base: the point of speedup 1; points[0] unless the user named another.
    """

    label: str
    kind: Kind
    batch: int
    points: tuple[Point, ...]
    base: Point

    def title(self, unit: str) -> str:
        return f"{self.label}, {self.batch:,} per {short(unit) if self.kind == 'weak' else 'update'}"

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(point.replicas for point in self.points)


def named(points: Sequence[Point]) -> list[Point]:
    """The points with the label of their family."""
    families = {key(point.family): point.family for point in points}
    names = labels(list(families.values()))
    return [replace(point, label=names[key(point.family)]) for point in points]


def series(points: Sequence[Point], kind: Kind, baseline: Point | None = None) -> list[Series]:
    """Every series of that kind with at least two numbers of GPUs."""
    groups: dict[tuple[str, int], list[Point]] = {}
    for point in points:
        groups.setdefault((key(point.family), _batch(point, kind)), []).append(point)
    all_series = []
    for (_, batch), members in groups.items():
        members = _with_one(members, points, kind, batch)
        by_count = {point.replicas: point for point in sorted(members, key=lambda point: point.nodes, reverse=True)}
        chosen = tuple(by_count[count] for count in sorted(by_count))
        if len(chosen) > 1:
            own = next(point for point in chosen if point in groups[key(point.family), batch] and point.replicas > 1)
            all_series.append(Series(own.label, kind, batch, chosen, baseline or chosen[0]))
    return all_series


def scaling(points: Sequence[Point], baseline: Point | None = None) -> list[Series]:
    """Both kinds, those with the most numbers of GPUs first, the others in the order of the points."""
    both = [*series(points, "weak", baseline), *series(points, "strong", baseline)]
    order = {label: place for place, label in enumerate(dict.fromkeys(point.label for point in points))}
    return sorted(both, key=lambda one: (-len(one.points), order[one.label]))


def _batch(point: Point, kind: Kind) -> int:
    return point.per_gpu if kind == "weak" else point.per_update


def _with_one(members: list[Point], points: Sequence[Point], kind: Kind, batch: int) -> list[Point]:
    """The members, with a run on one GPU borrowed from a family that shares its work in another way, if need be."""
    if any(point.replicas == 1 for point in members):
        return members
    wanted = key(without(members[0].family, SHARING))
    borrowed = [
        point
        for point in points
        if point.replicas == 1
        and _batch(point, kind) == batch
        and point.family.get("strategy") in ALONE
        and key(without(point.family, SHARING)) == wanted
    ]
    return [*members, *borrowed[:1]]


def speedup(point: Point, base: Point) -> Measured | None:
    """How many times the images per second of one GPU of `base`."""
    if point.images_per_s is None or base.images_per_s is None or not base.images_per_s.value:
        return None
    return point.images_per_s * (base.replicas / base.images_per_s.value)


def efficiency(point: Point, base: Point) -> Measured | None:
    """The speedup's share of the ideal, in %."""
    fast = speedup(point, base)
    return fast * (100 / point.replicas) if fast else None
