"""From a sweep's grid to its points: the values that tell a run from the others.  Pure."""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from launch.sweep.arguments import PREFIX
from launch.sweep.spec import Spec
from trainer.errors import SettingsError

Values = Mapping[str, Any]

LONGEST = 80
MOST_RUNS = 10_000  # each of which takes a command to plan; five axes of a hundred values would fill the memory
TAKEN = ("runs.csv", "runs.csv.tmp", "sweep.json")


@dataclass(frozen=True)
class Point:
    """One run's own values, and its name."""

    name: str
    values: Values


def points(spec: Spec) -> list[Point]:
    """Every combination of the grid, then the listed runs, without those to skip.  Raises SettingsError for none."""
    combined = _with_distinct_names([*_crossed(spec), *_listed_runs(spec)])
    kept = [point for point in combined if not _is_skipped({**spec.fixed, **point.values}, spec.skip)]
    if not kept:
        raise SettingsError(f"{spec.name} has no run; give a `grid:` or `runs:`, or skip less.")
    _check_names(spec, kept)
    return kept


def _crossed(spec: Spec) -> list[Point]:
    """Every combination of the grid's axes."""
    if not spec.grid:
        return []
    count = math.prod(map(len, spec.grid.values()))
    if count > MOST_RUNS:
        raise SettingsError(
            f"{spec.name} has a grid of {count:,} runs, and a sweep has at most {MOST_RUNS:,}; give fewer values."
        )
    combinations = [dict(zip(spec.grid, values, strict=True)) for values in product(*spec.grid.values())]
    return [Point(_name(values), values) for values in combinations]


def _listed_runs(spec: Spec) -> list[Point]:
    """The runs that the file lists one by one."""
    listed = []
    for number, given in enumerate(spec.runs, 1):
        values = {name: value for name, value in given.items() if name != "name"}
        if not values and "name" not in given:
            raise SettingsError(f"{spec.name}, runs: number {number} is empty; give it a name or a setting.")
        own_name = given.get("name")
        listed.append(Point(_slug(str(own_name)) if own_name else _name(values), values))
    return listed


def _check_names(spec: Spec, kept: Sequence[Point]) -> None:
    for name, count in Counter(point.name for point in kept).items():
        if name.lower() in TAKEN:
            raise SettingsError(f"{spec.name}: {name!r} is a file of the sweep's own; give that run another name.")
        if count > 1:
            raise SettingsError(f"{spec.name} has several runs {name!r}; give each of `runs:` a `name:` of its own.")


def _with_distinct_names(combined: list[Point]) -> list[Point]:
    """The points, numbered where different values give the same name (-1 and 1); names that were given stay."""
    apart: list[Point] = []
    seen: dict[str, list[Values]] = {}
    for point in combined:
        alike = seen.setdefault(point.name, [])
        is_other = point.name == _name(point.values) and bool(alike) and point.values not in alike
        apart.append(replace(point, name=f"{point.name}--{len(alike) + 1}") if is_other else point)
        alike.append(point.values)
    return apart


def _is_skipped(values: Values, skip: Sequence[Values]) -> bool:
    """Whether one of `skip` matches: all that it names have that value, or one of those values."""
    return any(each and _matches(values, each) for each in skip)


def _matches(values: Values, wanted: Values) -> bool:
    for name, allowed in wanted.items():
        texts = [str(one) for one in (allowed if isinstance(allowed, list) else [allowed])]
        if name not in values or str(values[name]) not in texts:
            return False
    return True


def _name(values: Values) -> str:
    """gpus-2-strategy-ddp, lr-0.1 of args.lr; one that is too long ends with a hash."""
    whole = "-".join(f"{name.removeprefix(PREFIX)}-{value}" for name, value in values.items())
    name = _slug(whole)
    return name if len(name) < LONGEST else f"{name[: LONGEST - 7]}-{hashlib.sha256(whole.encode()).hexdigest()[:6]}"


def _slug(text: str) -> str:
    """Letters, digits, dots and hyphens: a folder name anywhere."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:LONGEST].rstrip("-.") or "run"
