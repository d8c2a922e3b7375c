"""Read and write runs in run folders: settings, records, outcome and cost."""

import csv
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from io import StringIO
from itertools import takewhile
from pathlib import Path
from statistics import median
from typing import Any, Literal

from trainer import outcome as outcomes
from trainer.config import side_at
from trainer.contract import METRICS, SETTINGS
from trainer.errors import SettingsError, one_line, printable
from trainer.files import below, read_json, write_atomically
from trainer.settings.yaml_file import read_typed
from trainer.terminal import harmless_row

HOUR_S = 3600
UNKNOWN_SIDES = 10

# planned: not begun; running: begun and not known to have ended; interrupted: saved, and can be resumed.
State = Literal["planned", "running", "done", "failed", "interrupted"]


@dataclass(frozen=True)
class Run:
    """One training, finished or not.  Name and reason are single lines of printable text."""

    name: str
    folder: Path
    settings: Mapping[str, Any]  # of the trainer
    epochs: tuple[Mapping[str, Any], ...] = ()  # the trainer's records, which trainer/README.md describes
    backend: str = "local"
    options: Mapping[str, Any] = field(default_factory=dict)  # of the backend, such as nodes and instance_type
    point: Mapping[str, Any] = field(default_factory=dict)  # what differs from the other runs of its sweep
    state: State = "done"
    reason: str = ""  # why it failed, one sentence
    exit_code: int | None = None
    started: str = ""  # ISO 8601, UTC
    seconds: float | None = None  # wall time of the whole
    usd_per_hour: float | None = None  # of all its machines together
    usd: float | None = None  # None where it costs nothing
    rehearsed: bool = False  # on this machine, with an embedded AWS

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", printable(self.name))
        object.__setattr__(self, "reason", printable(" ".join(self.reason.split())))

    @property
    def steady(self) -> tuple[Mapping[str, Any], ...]:
        """The epochs that its speed is measured on: those with its last layout, batch and image size.

        Without the first of them, which starts workers, tunes cuDNN, compiles, and may have begun on other GPUs, unless
        it is the only one.
        """
        return self._last_stretch[1:] or self._last_stretch

    @property
    def is_warm(self) -> bool:
        """Whether there is an epoch after the first on the same GPUs with the same batch."""
        return len(self._last_stretch) > 1

    @property
    def _last_stretch(self) -> tuple[Mapping[str, Any], ...]:
        """The newest epochs that trained alike."""
        alike = list(takewhile(self._is_like_the_last, reversed(self.epochs)))
        return tuple(reversed(alike))

    def _is_like_the_last(self, epoch: Mapping[str, Any]) -> bool:
        return _layout(epoch) == _layout(self.last) and self._side(epoch) == self._side(self.last)

    def _side(self, epoch: Mapping[str, Any]) -> int:
        """Pixels a side of growing images, else 0.  For comparisons only."""
        first, epochs, full = (_whole(self.settings, name) for name in ("image_size_start", "epochs", "image_size"))
        place = _whole(epoch, "epoch")
        if first is None or place is None or epochs is None:
            return 0
        # Unless given the data set's own, which is larger.
        return side_at(place - 1, epochs, first, UNKNOWN_SIDES * first if full is None else full)

    @property
    def last(self) -> Mapping[str, Any]:
        """The newest record; empty where there is none."""
        return self.epochs[-1] if self.epochs else {}

    @property
    def is_script(self) -> bool:
        """Whether it is a user's own script, with metrics of its own: launch.core.metrics."""
        return "script" in self.settings

    @property
    def replicas(self) -> int:
        """GPUs or CPU ranks that shared one update; 0 without an epoch."""
        return int(number(self.last, "replicas") or number(self.last, "world_size") or 0)

    def typical(self, name: str) -> float | None:
        """The median of a field over the steady epochs; None if none has it."""
        values = [value for epoch in self.steady if (value := number(epoch, name)) is not None]
        return median(values) if values else None

    def newest(self, name: str) -> float | None:
        """The value of the last epoch that has one, as evaluations may be rarer than epochs."""
        return next((value for epoch in reversed(self.epochs) if (value := number(epoch, name)) is not None), None)

    @property
    def epoch_with_evaluation_s(self) -> float | None:
        """Seconds of a steady epoch with its share of evaluation, which may be rarer; None without epochs."""
        epoch_s, evaluation_s = self.typical("epoch_s"), self.typical("eval_s")
        if epoch_s is None:
            return None
        evaluated = [value for epoch in self.epochs if (value := number(epoch, "eval_s"))]
        if evaluation_s is None and evaluated:
            evaluation_s = median(evaluated)
        return epoch_s + (evaluation_s or 0.0) * len(evaluated) / len(self.epochs)

    @property
    def whole_s(self) -> float:
        """Seconds from start to end, if known including initialization and failed starts.

        At least the sum of its epochs, as the trainer records only the last start of a resumed run.
        """
        return max(self.seconds or 0.0, sum(map(seconds_of, self.epochs)))

    @property
    def usd_per_epoch(self) -> float | None:
        """USD of a steady epoch with its evaluation, or an equal share of the bill; None without a price."""
        if self.usd_per_hour is not None and self.epoch_with_evaluation_s is not None:
            return self.usd_per_hour * self.epoch_with_evaluation_s / HOUR_S
        return self.usd / len(self.epochs) if self.usd is not None and self.epochs else None

    @property
    def whole_usd(self) -> float | None:
        """USD from start to end, as billed if that is known; None without a price."""
        if self.usd is not None:
            return self.usd
        return None if self.usd_per_hour is None else self.usd_per_hour * self.whole_s / HOUR_S


def seconds_of(epoch: Mapping[str, Any]) -> float:
    """Of training and evaluation."""
    return (number(epoch, "epoch_s") or 0.0) + (number(epoch, "eval_s") or 0.0)


def _layout(epoch: Mapping[str, Any]) -> tuple[Any, ...]:
    """What must be equal for two epochs' speeds to be comparable."""
    return tuple(epoch.get(name) for name in ("world_size", "replicas", "nodes", "device", "global_batch"))


def number(record: Mapping[str, Any], name: str) -> float | None:
    """A number of a record; None if it is missing, not a number or not finite."""
    value = record.get(name)
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _whole(record: Mapping[str, Any], name: str) -> int | None:
    """A whole number of a record; None for any other value."""
    value = record.get(name)
    return value if isinstance(value, int) else None


def csv_of(rows: Sequence[Mapping[str, Any]], first: Iterable[str] = ()) -> str:
    """Rows as CSV, with a column for each name, `first` those; empty cells for what a row lacks."""
    cells = [harmless_row(dict(row)) for row in rows]
    names = {**harmless_row(dict.fromkeys(first, "")), **{name: "" for row in cells for name in row}}
    text = StringIO()
    writer = csv.DictWriter(text, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(cells)
    return text.getvalue()


RUN = "run.json"


def write(run: Run) -> None:
    """Write RUN.json into the run's folder, atomically."""
    run.folder.mkdir(parents=True, exist_ok=True)
    own = asdict(replace(run, epochs=()))  # asdict() would copy them all
    content = {name: value for name, value in own.items() if name not in ("folder", "epochs")}
    write_atomically(run.folder / RUN, json.dumps(content, indent=2, default=str) + "\n")


def read(folder: Path) -> Run:
    """Read the run in `folder`.  Raises SettingsError if there is none or it cannot be read."""
    try:
        if (folder / RUN).exists():
            return Run(folder=folder, epochs=read_epochs(folder), **_fields(read_json(folder / RUN)))
        if not (folder / METRICS).exists():
            raise SettingsError(f"{folder} holds no run: there is no {METRICS} in it.")
        return _of_trainer(folder)
    except (OSError, ValueError, TypeError) as error:
        raise SettingsError(f"{folder} has a run that cannot be read ({error}); remove it, or run it again.") from error


def _fields(content: object) -> Mapping[str, Any]:
    """The fields of a Run in the content of a RUN.json.  Raises ValueError for any other content."""
    known = {part.name for part in fields(Run)} - {"folder", "epochs"}
    values = {name: value for name, value in _mapping(RUN, content).items() if name in known}
    for name in ("settings", "options", "point"):
        _mapping(name, values.get(name, {}))
    return values


def _of_trainer(folder: Path) -> Run:
    """A run without a RUN.json.  Its state follows from its outcome.json, or without one from its epochs."""
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
    """The content of a config.yaml; empty if there is none.  Raises SettingsError and OSError."""
    return read_typed(path) if path.exists() else {}


def _mapping(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} must hold names and values")
    return value


def _is_whole(settings: Mapping[str, Any], epochs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a run without an outcome reached the end of its epochs or updates."""
    if not epochs:
        return False
    most_updates = settings.get("max_steps")
    if most_updates is not None and (number(epochs[-1], "updates") or 0) >= most_updates:
        return True
    return len(epochs) >= (settings.get("epochs") or 0)


def find(places: Sequence[Path]) -> list[Run]:
    """Every run in or below `places`, ordered by path.  Raises SettingsError for a place without one."""
    runs: dict[Path, Run] = {}
    for folder in folders(places):
        runs[folder.resolve()] = read(folder)
    return list(runs.values())


def readable(places: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """Every readable run in or below `places`, and an error message for each other one.

    Raises SettingsError for a place without a run, and if no run is readable.
    """
    runs: dict[Path, Run] = {}
    unread: dict[Path, SettingsError] = {}
    for folder in folders(places):
        try:
            runs[folder.resolve()] = read(folder)
        except SettingsError as error:
            unread[folder.resolve()] = error
    if not runs:
        raise next(iter(unread.values()))
    return list(runs.values()), [str(error) for error in unread.values()]


def folders(places: Sequence[Path], *, may_be_empty: bool = False) -> Iterator[Path]:
    """Every folder of a run, ordered by path.  Raises SettingsError for a place without one, unless it may be empty."""
    for place in places:
        if not os.path.isdir(place):  # noqa: PTH112  # which is no error where a name is too long
            raise SettingsError(f"there is no folder {place}; give one that a run or a sweep wrote.")
        found = {mark.parent for mark in below(place) if mark.name in (RUN, METRICS)}
        if not found and not may_be_empty:
            raise SettingsError(f"{place} holds no run: there is no {METRICS} below it.")
        yield from sorted(found)


def read_epochs(folder: Path) -> tuple[Mapping[str, Any], ...]:
    """The records of a run folder, oldest first, without an incomplete last line.

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
        except (ValueError, RecursionError):  # not UTF-8, or nested too deeply
            record = None
        if not isinstance(record, dict):
            shown = one_line(line.decode(errors="backslashreplace"), 40)
            raise SettingsError(f"{path} has a line that is not a record: {shown}; remove the run, or run it again.")
        records.append(record)
    return tuple(records)
