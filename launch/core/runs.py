"""What runs left behind: settings, records, how each ended and what it cost.  Reads and writes run folders.

A run folder has the trainer's config.yaml and metrics.jsonl, and, where launch.sweep made it, run.json.  The sweep
writes them, launch.report and the forecast's --from-run read them.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from statistics import median
from typing import Any, Literal

from trainer.contract import METRICS, SETTINGS
from trainer.errors import SettingsError

RUN = "run.json"

# planned: not begun; running: begun and not seen to end; interrupted: saved, goes on when started again.
State = Literal["planned", "running", "done", "failed", "interrupted"]


@dataclass(frozen=True)
class Run:
    """One training, as far as it came.

    settings: of the trainer; options: of the backend, such as nodes and instance_type; point: of those two, what
    makes it differ from the other runs of its sweep; reason: why it failed, one sentence; epochs: the trainer's
    records, as trainer/README.md has them; seconds: of the whole, with start and end; usd_per_hour: of all its machines
    together; usd: None where nobody pays.
    """

    name: str
    folder: Path
    settings: Mapping[str, Any]
    epochs: tuple[Mapping[str, Any], ...] = ()
    backend: str = "local"
    options: Mapping[str, Any] = field(default_factory=dict)
    point: Mapping[str, Any] = field(default_factory=dict)
    state: State = "done"
    reason: str = ""
    exit_code: int | None = None
    started: str = ""  # ISO 8601, UTC
    seconds: float | None = None
    usd_per_hour: float | None = None
    usd: float | None = None

    @property
    def steady(self) -> tuple[Mapping[str, Any], ...]:
        """Its epochs without the first, which starts workers, tunes cuDNN and compiles; of a single one, that one."""
        return self.epochs[1:] or self.epochs

    @property
    def last(self) -> Mapping[str, Any]:
        """The newest record; empty where there is none."""
        return self.epochs[-1] if self.epochs else {}

    @property
    def replicas(self) -> int:
        """GPUs, or CPU ranks, that shared one update; 0 where no epoch says."""
        return int(number(self.last, "replicas") or number(self.last, "world_size") or 0)

    def typical(self, name: str) -> float | None:
        """The median of a number over the steady epochs; None where none has it."""
        values = [value for epoch in self.steady if (value := number(epoch, name)) is not None]
        return median(values) if values else None


def number(record: Mapping[str, Any], name: str) -> float | None:
    """A value of a record; None for one that is missing, no number or not finite."""
    value = record.get(name)
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def write(run: Run) -> None:
    """Writes RUN.json into the run's folder, whole or not at all."""
    run.folder.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in asdict(run).items() if name not in ("folder", "epochs")}
    temporary = run.folder / f"{RUN}.tmp"
    temporary.write_text(json.dumps(kept, indent=2, default=str) + "\n")
    temporary.replace(run.folder / RUN)


def read(folder: Path) -> Run:
    """The run in `folder`.  Raises SettingsError for a folder that has none, or one that cannot be read."""
    import yaml  # a while to import, and --help does not need it

    try:
        if (folder / RUN).exists():
            return Run(folder=folder, epochs=read_epochs(folder), **_kept(json.loads((folder / RUN).read_text())))
        if not (folder / METRICS).exists():
            raise SettingsError(f"{folder} holds no run: there is no {METRICS} in it.")
        settings = yaml.safe_load((folder / SETTINGS).read_text()) if (folder / SETTINGS).exists() else {}
        settings, epochs = _mapping(SETTINGS, settings or {}), read_epochs(folder)
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise SettingsError(f"{folder} has a run that cannot be read ({error}); remove it, or run it again.") from error
    return Run(folder.name, folder, settings, epochs, state="done" if _is_whole(settings, epochs) else "running")


def _kept(written: object) -> Mapping[str, Any]:
    """What write() keeps, of the content of a RUN.json.  Raises ValueError where it is something else."""
    known = {part.name for part in fields(Run)} - {"folder", "epochs"}
    kept = {name: value for name, value in _mapping(RUN, written).items() if name in known}
    for name in ("settings", "options", "point"):
        _mapping(name, kept.get(name, {}))
    return kept


def _mapping(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} must hold names and values")
    return value


def _is_whole(settings: Mapping[str, Any], epochs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a run of the trainer alone, which writes no state, came to the end of its epochs or updates."""
    most = settings.get("max_steps")
    stopped = bool(epochs) and most is not None and (number(epochs[-1], "updates") or 0) >= most
    return bool(epochs) and (stopped or len(epochs) >= (settings.get("epochs") or 0))


def find(places: Sequence[Path]) -> list[Run]:
    """Every run in or below `places`, ordered by path.  Raises SettingsError for a place without one."""
    found: dict[Path, Run] = {}
    for place in places:
        if not place.is_dir():
            raise SettingsError(f"there is no folder {place}; give one that a run or a sweep wrote.")
        marks = [*place.rglob(RUN), *place.rglob(METRICS)]
        folders = sorted({mark.parent for mark in marks})
        if not folders:
            raise SettingsError(f"{place} holds no run: there is no {METRICS} below it.")
        found |= {folder.resolve(): read(folder) for folder in folders}
    return list(found.values())


def read_epochs(folder: Path) -> tuple[Mapping[str, Any], ...]:
    """The records of a run folder, oldest first; a last line that was cut off is left out.

    Raises SettingsError for a line that is no record.
    """
    path = folder / METRICS
    records: list[Mapping[str, Any]] = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            break
        if not isinstance(record, dict):
            raise SettingsError(f"{path} has a line that is no record: {line[:40]}; remove the run, or run it again.")
        records.append(record)
    return tuple(records)
