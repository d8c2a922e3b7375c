"""A sweep's file, read and checked for its shape.  What the settings mean is checked elsewhere."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from launch.core.backend import BACKENDS
from launch.core.training.options import ScriptOptions
from launch.sweep.arguments import is_argument
from trainer.errors import SettingsError
from trainer.settings.argparser import home_path
from trainer.settings.registry import check_name, did_you_mean
from trainer.settings.yaml_file import read_typed

# What trains in place of our trainer: the same as under `fixed`.
SCRIPT = tuple(ScriptOptions.model_fields)
# Keys that `small` may change.
IN_SMALL = ("backend", "rehearse", "options", "fixed", "grid", "runs", "skip", *SCRIPT)
KEYS = ("name", "about", "small", *IN_SMALL)
DEFAULT_BACKEND = "local"
NAME = r"[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Spec:
    """options: by backend; fixed: settings of every run; grid: values of each axis; runs: points beside the grid;
    skip: points to leave out, each by some of its values.
    """

    name: str
    about: str
    backend: str
    rehearse: bool
    options: Mapping[str, Values]
    fixed: Values
    grid: Mapping[str, list[Any]]
    runs: tuple[Values, ...]
    skip: tuple[Values, ...]


def presets() -> list[str]:
    """The names of the sweeps in infra/sweeps."""
    return sorted(file.name.removesuffix(".yaml") for file in _folder().iterdir() if file.name.endswith(".yaml"))


def _folder() -> Traversable:
    return files("infra").joinpath("sweeps")


def read(where: str, *, small: bool = False) -> Spec:
    """The sweep in a file, or the preset of that name.  small: changed by its `small:`.  Raises SettingsError."""
    path: Path | Traversable = home_path(where)
    if not where.endswith((".yaml", ".yml")) and not path.is_file():
        check_name("sweep", where, presets())
        path = _folder().joinpath(f"{where}.yaml")
    if not path.is_file():
        raise SettingsError(f"{where}: no such file; give a YAML file, or one of: {', '.join(presets())}.")
    return parse(read_typed(path), where, small=small)


def parse(content: Any, where: str, *, small: bool = False) -> Spec:
    """The sweep that a file's `content` describes.  where: its name, for errors.  Raises SettingsError."""
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
    return Spec(
        name=_name(str(values.get("name", Path(where).stem)), where),
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
    """`values` with `changes`: single settings of mappings, and lists as a whole."""
    changed = dict(values)
    for key, value in changes.items():
        changed[key] = value
        if value and key in ("options", "fixed", "grid"):
            changes_of_key = _mapping(value, f"{where}, small, {key}")
            changed[key] = {**_mapping(values.get(key), f"{where}, {key}"), **changes_of_key}
    return changed


def _fixed(values: Values, where: str) -> dict[str, Any]:
    """The settings of every run: those under `fixed`, and what trains in place of our trainer."""
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
    """The content by name, names spelled with underscores but for those of a script's own arguments."""
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


def _name(name: str, where: str) -> str:
    if not re.fullmatch(NAME, name):
        raise SettingsError(f"{where}: name {name!r} must be letters, digits and hyphens, at most 32.")
    return name
