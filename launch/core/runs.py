"""Runs on disk.  Reads and writes run folders.

A run folder has the trainer's config.yaml, metrics.jsonl and outcome.json, and, where launch.sweep made it, run.json.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from launch.core.run import Run, number
from trainer import outcome as outcomes
from trainer.contract import METRICS, SETTINGS
from trainer.errors import SettingsError, one_line
from trainer.files import below, read_json, write_atomically
from trainer.settings.yaml_file import read_typed

RUN = "run.json"


def write(run: Run) -> None:
    """Writes RUN.json into the run's folder, whole or not at all."""
    run.folder.mkdir(parents=True, exist_ok=True)
    own = asdict(replace(run, epochs=()))  # or it would copy them all
    content = {name: value for name, value in own.items() if name not in ("folder", "epochs")}
    write_atomically(run.folder / RUN, json.dumps(content, indent=2, default=str) + "\n")


def read(folder: Path) -> Run:
    """The run in `folder`.  Raises SettingsError for a folder that has none, or one that cannot be read."""
    try:
        if (folder / RUN).exists():
            return Run(folder=folder, epochs=read_epochs(folder), **_fields(read_json(folder / RUN)))
        if not (folder / METRICS).exists():
            raise SettingsError(f"{folder} holds no run: there is no {METRICS} in it.")
        return _of_trainer(folder)
    except (OSError, ValueError, TypeError) as error:
        raise SettingsError(f"{folder} has a run that cannot be read ({error}); remove it, or run it again.") from error


_AMOUNTS, _TEXTS = ("seconds", "usd_per_hour", "usd"), ("name", "backend", "state", "reason", "started")


def _fields(content: object) -> Mapping[str, Any]:
    """The fields of a Run in the content of a RUN.json.  Raises ValueError where it is something else."""
    known = {part.name for part in fields(Run)} - {"folder", "epochs"}
    values = {name: value for name, value in _mapping(RUN, content).items() if name in known}
    for name in ("settings", "options", "point"):
        _mapping(name, values.get(name, {}))
    if odd := next((name for name in values if not _fits(name, values)), ""):
        raise ValueError(f"{odd} is neither text nor a number, as it must be")
    return values


def _fits(name: str, values: Mapping[str, Any]) -> bool:
    """Whether what a Run counts with is a number, and what it shows is text."""
    if name in _AMOUNTS:
        amount = number(values, name)
        return values[name] is None or (amount is not None and abs(amount) < outcomes.LARGEST)
    if name == "exit_code":
        return values[name] is None or type(values[name]) is int
    return name not in _TEXTS or isinstance(values[name], str)


def _of_trainer(folder: Path) -> Run:
    """A run without a RUN.json: its outcome.json says how it ended; without one, its epochs do."""
    settings = _settings(folder / SETTINGS)
    epochs = read_epochs(folder)
    outcome = outcomes.read(folder)
    if outcome is None:
        return Run(folder.name, folder, settings, epochs, state="done" if _is_whole(settings, epochs) else "running")
    return Run(
        folder.name, folder, settings, epochs, state="interrupted" if outcome.state == "stopped" else outcome.state,
        reason=outcome.reason, exit_code=outcome.exit_code, seconds=outcome.seconds, usd=outcome.usd,
    )  # fmt: skip


def _settings(path: Path) -> Mapping[str, Any]:
    """What a config.yaml says; nothing where there is none.  Raises SettingsError and OSError."""
    return read_typed(path) if path.exists() else {}


def _mapping(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} must hold names and values")
    return value


def _is_whole(settings: Mapping[str, Any], epochs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a run without an outcome came to the end of its epochs or updates."""
    if not epochs:
        return False
    most_updates = settings.get("max_steps")
    if most_updates is not None and (number(epochs[-1], "updates") or 0) >= most_updates:
        return True
    return len(epochs) >= (settings.get("epochs") or 0)


def find(places: Sequence[Path]) -> list[Run]:
    """Every run in or below `places`, ordered by path.  Raises SettingsError for a place without one."""
    runs: dict[Path, Run] = {}
    for folder in _folders(places):
        runs[folder.resolve()] = read(folder)
    return list(runs.values())


def readable(places: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """Every run in or below `places` that can be read, and for each other one the sentence why not.

    Raises SettingsError for a place without a run, and where none can be read.
    """
    runs: dict[Path, Run] = {}
    unread: dict[Path, SettingsError] = {}
    for folder in _folders(places):
        try:
            runs[folder.resolve()] = read(folder)
        except SettingsError as error:
            unread[folder.resolve()] = error
    if not runs:
        raise next(iter(unread.values()))
    return list(runs.values()), [str(error) for error in unread.values()]


def _folders(places: Sequence[Path]) -> Iterator[Path]:
    """Every folder of a run, ordered by path.  Raises SettingsError for a place without one."""
    for place in places:
        if not os.path.isdir(place):  # noqa: PTH112  # which is no error where a name is too long
            raise SettingsError(f"there is no folder {place}; give one that a run or a sweep wrote.")
        folders = {mark.parent for mark in below(place) if mark.name in (RUN, METRICS)}
        if not folders:
            raise SettingsError(f"{place} holds no run: there is no {METRICS} below it.")
        yield from sorted(folders)


def read_epochs(folder: Path) -> tuple[Mapping[str, Any], ...]:
    """The records of a run folder, oldest first; a last line that was cut off is left out.

    Raises SettingsError for a line that is not a record, and for a file that cannot be read.
    """
    path = folder / METRICS
    if not path.exists():
        return ()
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise SettingsError(f"{path} cannot be read ({error.strerror}); remove the run, or run it again.") from error
    records: list[Mapping[str, Any]] = []
    for line in lines:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            break
        except (ValueError, RecursionError):  # no UTF-8; brackets too deep
            record = None
        if not isinstance(record, dict):
            shown = one_line(line.decode(errors="backslashreplace"), 40)
            raise SettingsError(f"{path} has a line that is not a record: {shown}; remove the run, or run it again.")
        records.append(record)
    return tuple(records)
