"""Read a sweep's file, check its structure, and expand it into points: the values that distinguish the runs.

planned.py checks the settings themselves.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import product
from pathlib import Path
from typing import Any

from launch.core.backend import BACKENDS
from launch.core.training.options import ScriptOptions
from trainer.errors import SettingsError, check_name, did_you_mean
from trainer.settings.argparser import home_path
from trainer.settings.yaml_file import read_typed

# Keys of a script that replaces the built-in trainer; they may also be under `fixed`.
SCRIPT = tuple(ScriptOptions.model_fields)
# Keys that `small` may change.
IN_SMALL = ("backend", "rehearse", "options", "fixed", "grid", "runs", "skip", *SCRIPT)
KEYS = ("name", "about", "small", *IN_SMALL)
DEFAULT_BACKEND = "local"
NAME = r"[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"

# The prefix of a script's own arguments: `args.lr: 0.1` is --lr=0.1 on its command line.
PREFIX = "args."

Values = Mapping[str, Any]
LONGEST = 80
MOST_RUNS = 10_000  # planning runs a command for each, and five axes of a hundred values would exceed the memory
TAKEN = ("runs.csv", "runs.csv.tmp", "sweep.json")


def is_argument(name: str) -> bool:
    return name.startswith(PREFIX)


@dataclass(frozen=True)
class SweepFile:
    """The content of a sweep's file."""

    name: str
    about: str
    backend: str
    rehearse: bool
    options: Mapping[str, Values]  # by backend
    fixed: Values  # settings of every run
    grid: Mapping[str, list[Any]]  # the values of each axis
    runs: tuple[Values, ...]  # points beside the grid
    skip: tuple[Values, ...]  # points to leave out, each by some of its values


def presets() -> list[str]:
    """The names of the sweeps in infra/sweeps."""
    return sorted(file.name.removesuffix(".yaml") for file in _folder().iterdir() if file.name.endswith(".yaml"))


def _folder() -> Traversable:
    return files("infra").joinpath("sweeps")


def read(where: str, *, small: bool = False) -> SweepFile:
    """Read the sweep in a file, or the preset of that name.  small: apply its `small:`.  Raises SettingsError."""
    path: Path | Traversable = home_path(where)
    if not where.endswith((".yaml", ".yml")) and not path.is_file():
        check_name("sweep", where, presets())
        path = _folder().joinpath(f"{where}.yaml")
    if not path.is_file():
        raise SettingsError(f"{where}: no such file; give a YAML file, or one of: {', '.join(presets())}.")
    return parse(read_typed(path), where, small=small)


def parse(content: Any, where: str, *, small: bool = False) -> SweepFile:
    """Parse the `content` of a sweep's file.  where: its name, for errors.  Raises SettingsError."""
    values = _mapping(content, where)
    _refuse_unknown(values, KEYS, where)
    changes = _mapping(values.pop("small", {}), f"{where}, small")
    _refuse_unknown(changes, IN_SMALL, f"{where}, small")
    if small:
        if not changes:
            raise SettingsError(f"{where} has no `small:` version; leave --small out, or write one.")
        values = _changed(values, {"backend": DEFAULT_BACKEND, "rehearse": False, **changes}, where)
    backend = str(values.get("backend", DEFAULT_BACKEND))
    check_name("backend", backend, BACKENDS)
    return SweepFile(
        name=_checked_name(str(values.get("name", Path(where).stem)), where),
        about=str(values.get("about", "")).strip(),
        backend=backend,
        rehearse=_boolean(values.get("rehearse", False), f"{where}, rehearse"),
        options=_by_backend(values.get("options", {}), where),
        fixed=_fixed(values, where),
        grid={name: _values(axis) for name, axis in _mapping(values.get("grid", {}), f"{where}, grid").items()},
        runs=tuple(_each(values.get("runs", ()), f"{where}, runs")),
        skip=tuple(_each(values.get("skip", ()), f"{where}, skip")),
    )


def _changed(values: dict[str, Any], changes: dict[str, Any], where: str) -> dict[str, Any]:
    """Apply `changes` to `values`: mappings are merged by setting, lists are replaced."""
    changed = dict(values)
    for key, value in changes.items():
        changed[key] = value
        if value and key in ("options", "fixed", "grid"):
            changes_of_key = _mapping(value, f"{where}, small, {key}")
            changed[key] = {**_mapping(values.get(key), f"{where}, {key}"), **changes_of_key}
    return changed


def _fixed(values: Values, where: str) -> dict[str, Any]:
    """The settings of every run: those under `fixed`, and the script, if any."""
    fixed = _mapping(values.get("fixed", {}), f"{where}, fixed")
    script = {name: values[name] for name in SCRIPT if name in values}
    for name in script:
        if name in fixed:
            raise SettingsError(f"{where} gives {name} twice, also under `fixed`; leave one of them out.")
    if isinstance(script.get("args"), dict):
        raise SettingsError(
            f"{where}, args: must be a text or a list, such as `args: --epochs 2`; arguments by name are args.lr under "
            "`fixed`, `grid` or `runs`."
        )
    return {**fixed, **script}


def _mapping(content: Any, where: str) -> dict[str, Any]:
    """The content as a mapping, with hyphens in names replaced by underscores, except in a script's arguments."""
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"{where} must hold `name: value` lines, not {content!r}.")
    return {_spelt(str(name)): value for name, value in content.items()}


def _spelt(name: str) -> str:
    return name if is_argument(name) else name.replace("-", "_")


def _boolean(given: Any, where: str) -> bool:
    if not isinstance(given, bool):
        raise SettingsError(f"{where} must be true or false, not {given!r}.")
    return given


def _each(content: Any, where: str) -> Iterator[dict[str, Any]]:
    if content is None:
        return
    if not isinstance(content, (list, tuple)):
        raise SettingsError(f"{where} must be a list, such as `- {{strategy: dp, gpus: 4}}`.")
    yield from (_mapping(item, where) for item in content)


def _values(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _by_backend(content: Any, where: str) -> dict[str, Values]:
    options = _mapping(content, f"{where}, options")
    for name, value in options.items():
        if name not in BACKENDS:
            raise SettingsError(
                f"{where}: options are given by backend, such as `options: {{ec2: {{instance_type: g5.12xlarge}}}}`, "
                f"and there is no backend {name!r}{did_you_mean(name, BACKENDS) or '.'}"
            )
        options[name] = _mapping(value, f"{where}, options, {name}")
    return options


def _refuse_unknown(names: Iterable[str], known: Iterable[str], where: str) -> None:
    for name in names:
        if name not in known:
            raise SettingsError(f"unknown key {name!r} in {where}{did_you_mean(name, known) or '.'} Known: "
                                f"{', '.join(known)}.")  # fmt: skip


def _checked_name(name: str, where: str) -> str:
    if not re.fullmatch(NAME, name):
        raise SettingsError(f"{where}: name {name!r} must be letters, digits and hyphens, at most 32.")
    return name


@dataclass(frozen=True)
class Point:
    """One run's own values, and its name."""

    name: str
    values: Values


def points(file: SweepFile) -> list[Point]:
    """The grid's combinations, then the listed runs, without skipped ones.  Raises SettingsError if none is left."""
    combined = _with_distinct_names([*_crossed(file), *_listed_runs(file)])
    kept = [point for point in combined if not _is_skipped({**file.fixed, **point.values}, file.skip)]
    if not kept:
        raise SettingsError(f"{file.name} has no run; give a `grid:` or `runs:`, or skip less.")
    _check_names(file, kept)
    return kept


def _crossed(file: SweepFile) -> list[Point]:
    """Every combination of the grid's axes."""
    if not file.grid:
        return []
    count = math.prod(map(len, file.grid.values()))
    if count > MOST_RUNS:
        raise SettingsError(
            f"{file.name} has a grid of {count:,} runs, and a sweep has at most {MOST_RUNS:,}; give fewer values."
        )
    combinations = [dict(zip(file.grid, values, strict=True)) for values in product(*file.grid.values())]
    return [Point(_name(values), values) for values in combinations]


def _listed_runs(file: SweepFile) -> list[Point]:
    """The runs that the file lists one by one."""
    listed = []
    for number, given in enumerate(file.runs, 1):
        values = {name: value for name, value in given.items() if name != "name"}
        if not values and "name" not in given:
            raise SettingsError(f"{file.name}, runs: number {number} is empty; give it a name or a setting.")
        own_name = given.get("name")
        listed.append(Point(_slug(str(own_name)) if own_name else _name(values), values))
    return listed


def _check_names(file: SweepFile, kept: Sequence[Point]) -> None:
    for name, count in Counter(point.name for point in kept).items():
        if name.lower() in TAKEN:
            raise SettingsError(f"{file.name}: {name!r} is the name of one of the sweep's files; rename that run.")
        if count > 1:
            raise SettingsError(f"{file.name} has several runs {name!r}; give each of `runs:` a different `name:`.")


def _with_distinct_names(combined: list[Point]) -> list[Point]:
    """Number the points if different values give the same name (-1 and 1); names from the file are unchanged."""
    distinct: list[Point] = []
    seen: dict[str, list[Values]] = {}
    for point in combined:
        alike = seen.setdefault(point.name, [])
        is_other = point.name == _name(point.values) and bool(alike) and point.values not in alike
        distinct.append(replace(point, name=f"{point.name}--{len(alike) + 1}") if is_other else point)
        alike.append(point.values)
    return distinct


def _is_skipped(values: Values, skip: Sequence[Values]) -> bool:
    """Whether one of `skip` matches: every name in it has that value, or one of its values."""
    return any(each and _matches(values, each) for each in skip)


def _matches(values: Values, pattern: Values) -> bool:
    for name, allowed in pattern.items():
        texts = [str(one) for one in (allowed if isinstance(allowed, list) else [allowed])]
        if name not in values or str(values[name]) not in texts:
            return False
    return True


def _name(values: Values) -> str:
    """A run's name: gpus-2-strategy-ddp, or lr-0.1 for args.lr; long ones are cut and end with a hash."""
    whole = "-".join(f"{name.removeprefix(PREFIX)}-{value}" for name, value in values.items())
    name = _slug(whole)
    return name if len(name) < LONGEST else f"{name[: LONGEST - 7]}-{hashlib.sha256(whole.encode()).hexdigest()[:6]}"


def _slug(text: str) -> str:
    """Reduce to letters, digits, dots and hyphens, which are valid in any folder name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:LONGEST].rstrip("-.") or "run"
