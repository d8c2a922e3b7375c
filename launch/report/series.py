"""Series: points that differ in the number of GPUs only, with their baseline.  Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from launch.core.drawing.charts import Measured, exactly
from launch.report.identity import LEARNING, PASSES, SHARING, key, labels, plainly, shared, short, without
from launch.report.points import Point, layout

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
    """What all points but that on one GPU are called, or where they differ, what nothing tells from others."""
    label = shared(point.label for point in own if point.replicas > 1 or len(own) == 1)
    return label or plainly(own[-1].family)


def _groups(points: Sequence[Point], kind: Kind) -> list[list[Point]]:
    """Points of as many GPUs each, all different, that an update takes the same work in.

    Families that differ in learning only, or in how many passes an update of that size is made of, are one group,
    unless both have a point on the same number of GPUs.
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
    """Whether speeds can be compared with the baseline's: the same images, network and batch."""
    names = ("model", "dataset", "image_size")
    alike = all(baseline.family.get(name) == first.family.get(name) for name in names)
    return alike and _batch(baseline, kind) == _batch(first, kind)


def scaling(points: Sequence[Point], baseline: Point | None = None) -> list[Series]:
    """Both kinds, those with the most numbers of GPUs first, the others in the order of the points."""
    both = [*series(points, "weak", baseline), *series(points, "strong", baseline)]
    order = {label: place for place, label in enumerate(dict.fromkeys(point.label for point in points))}
    return sorted(both, key=lambda one: (-len(one.points), order.get(one.label, len(order))))


def _batch(point: Point, kind: Kind) -> int:
    return point.per_gpu if kind == "weak" else point.per_update


def _borrowed(members: Sequence[Point], points: Sequence[Point], kind: Kind) -> list[Point]:
    """Points of other families that belong in this series as well; the members go before them.

    A run on one GPU of a family that shares its work in another way, and where the members are a layout of their own,
    points that have it without being told apart by it.
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
    """Those of the same family as `first`, but for some settings."""
    wanted = key(without(first.family, but_for))
    return [point for point in points if key(without(point.family, but_for)) == wanted]


def speedup(point: Point, base: Point) -> Measured | None:
    """How many times the images per second of one GPU of `base`; its range has that of `base` in it."""
    if point.images_per_s is None or base.images_per_s is None or not base.images_per_s.low:
        return None
    if point is base:
        return exactly(base.replicas)
    return point.images_per_s / base.images_per_s * base.replicas


def efficiency(point: Point, base: Point) -> Measured | None:
    """The speedup's share of the ideal, in %."""
    fast = speedup(point, base)
    return fast * (100 / point.replicas) if fast else None
