"""From a sweep's grid to its points: what each run has that the others have not.  Pure."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from launch.sweep.spec import Spec
from trainer.errors import SettingsError

Values = Mapping[str, Any]

LONGEST = 80
TAKEN = ("runs.csv", "runs.csv.tmp", "sweep.json")


@dataclass(frozen=True)
class Point:
    """One run's own values, and what it is called."""

    name: str
    values: Values


def points(spec: Spec) -> list[Point]:
    """Every combination of the grid, then the runs, without those to skip.  Raises SettingsError if none is left."""
    crossed = (
        [dict(zip(spec.grid, values, strict=True)) for values in product(*spec.grid.values())] if spec.grid else []
    )
    found = [Point(_name(values), values) for values in crossed]
    for number, given in enumerate(spec.runs, 1):
        values = {name: value for name, value in given.items() if name != "name"}
        if not values and "name" not in given:
            raise SettingsError(f"{spec.name}, runs: number {number} says nothing; give it a name or a setting.")
        found.append(Point(_slug(str(given["name"])) if given.get("name") else _name(values), values))
    found = _told_apart(found)
    left = [point for point in found if not _is_skipped({**spec.fixed, **point.values}, spec.skip)]
    if not left:
        raise SettingsError(f"{spec.name} has no run; give a `grid:` or `runs:`, or skip less.")
    if taken := [point.name for point in left if point.name.lower() in TAKEN]:
        raise SettingsError(f"{spec.name}: {taken[0]!r} is a file of the sweep's own; give that run another name.")
    for name in {point.name for point in left}:
        if sum(point.name == name for point in left) > 1:
            raise SettingsError(f"{spec.name} has several runs {name!r}; give each of `runs:` a `name:` of its own.")
    return left


def _told_apart(found: list[Point]) -> list[Point]:
    """The points, where letters and digits are the same for several (-1 and 1) numbered; names that were given stay."""
    apart: list[Point] = []
    for place, point in enumerate(found):
        alike = [other.values for other in found[:place] if other.name == point.name]
        is_other = point.name == _name(point.values) and bool(alike) and point.values not in alike
        apart.append(replace(point, name=f"{point.name}--{len(alike) + 1}") if is_other else point)
    return apart


def _is_skipped(values: Values, skip: tuple[Values, ...]) -> bool:
    """Whether one of `skip` fits: all that it names have that value, or one of those values."""
    return any(
        all(
            name in values and str(values[name]) in [str(one) for one in _listed(wanted)]
            for name, wanted in each.items()
        )
        for each in skip
        if each
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _name(values: Values) -> str:
    """gpus-2-strategy-ddp; one that is too long ends with digits of its own."""
    whole = "-".join(f"{name}-{value}" for name, value in values.items())
    name = _slug(whole)
    return name if len(name) < LONGEST else f"{name[: LONGEST - 7]}-{hashlib.sha256(whole.encode()).hexdigest()[:6]}"


def _slug(text: str) -> str:
    """Letters, digits, dots and hyphens: a folder anywhere."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:LONGEST].rstrip("-.") or "run"
