"""Reads and writes a job's folder."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from launch.core.earlier import COUNTING, Earlier, is_same_script, setting_in, took
from launch.core.job import JOB_NAME, are_default
from launch.core.training.base import Training
from launch.slurm.backend import BACKEND
from launch.slurm.names import ARCHIVE, EDF, LOG, SCRIPT, SPEC, STARTS, STOP, WORK
from launch.slurm.script import ResolvedJob
from trainer import outcome
from trainer.contract import METRICS, OUTCOME, PACE
from trainer.files import read_json, write_atomically
from trainer.script.pace import Pace
from trainer.script.pace import parse as parse_pace

# Files that the toolkit writes into a job's folder.
TOOLKIT_FILES = {ARCHIVE, EDF, LOG, METRICS, OUTCOME, PACE, SCRIPT, SPEC, STARTS, STOP, WORK}
MOST_LOOKED_AT, MOST_READ = 50, 3  # jobs
MOST_NAMED = 50  # files


@dataclass(frozen=True)
class JobFolder:
    """The content of a job's folder."""

    path: Path
    exists: bool
    script: str | None  # as submitted
    ids: tuple[str, ...]  # Slurm's, one per submission
    starts: tuple[Mapping[str, Any], ...]  # how each start ended, see job.sbatch
    log_start: int = 0  # offset of the newest submission in the log, if recorded
    submitted: datetime | None = None  # the newest time

    @property
    def is_job(self) -> bool:
        """Whether launch.slurm has submitted a job from here."""
        return self.script is not None

    @property
    def slurm_endings(self) -> int:
        """The number of starts that Slurm ended: by cancelling or preempting the job."""
        return sum(start["then"] == "slurm" for start in self.starts)

    @property
    def last_start(self) -> Mapping[str, Any] | None:
        """The start that ended the newest submission for good; None if it has not ended, or only Slurm knows how."""
        starts = [start for start in self.starts if self.ids and start["job"] == self.ids[-1]]
        return starts[-1] if starts and starts[-1]["then"] not in ("requeue", "slurm") else None


def read_folder(path: Path) -> JobFolder:
    """Read the job folder at `path`, which need not exist.  An incomplete last line of its starts is ignored."""
    script, spec = path / SCRIPT, _spec(path)
    return JobFolder(
        path=path,
        exists=_has_content(path),
        script=_text(script),
        ids=tuple(spec.get("ids", ())),
        starts=tuple(_read_starts(path / STARTS)),
        log_start=spec.get("log_start", 0),
        submitted=_written(path / SPEC),
    )


def _written(path: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return None


def _spec(folder: Path) -> Mapping[str, Any]:
    """The job.json that launch.slurm wrote at the submission; empty if it is missing or damaged."""
    try:
        content = read_json(folder / SPEC)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _has_content(path: Path) -> bool:
    """Whether `path` is a file or a folder with content; also if this user may not read it."""
    try:
        return path.exists() and any(path.iterdir())
    except OSError:
        return True


def _text(path: Path) -> str | None:
    """A file's text; None if it is missing, unreadable or not a regular file."""
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return None


def _read_starts(path: Path) -> list[Mapping[str, Any]]:
    starts: list[Mapping[str, Any]] = []
    for line in (_text(path) or "").splitlines():
        with suppress(ValueError):  # cut off on a full disk
            starts.append(json.loads(line))
    return starts


def name_in(folder: Path) -> str | None:
    """The name of the job in a folder; None if there is none.

    Names are printed in commands for users to paste, so only valid job names count.
    """
    spec = _spec(folder)
    name = str(spec.get("job", ""))
    return name if spec.get("backend") == BACKEND.name and re.fullmatch(JOB_NAME, name) else None


def task_in(array: Path, number: int) -> tuple[str, Path] | None:
    """The name and folder of the job of an array's task; None if the folder has no such array."""
    folders = _spec(array).get("tasks")
    if not isinstance(folders, list) or number >= len(folders):
        return None
    folder = Path(str(folders[number]))
    name = name_in(folder)
    return (name, folder) if name else None


def find_named(job: str, cwd: Path) -> Path | None:
    """The folder of the job called `job` that --run-dir or a sweep put below runs/."""
    specs = (*cwd.glob(f"runs/*/{SPEC}"), *cwd.glob(f"runs/*/*/{SPEC}"))
    return next((spec.parent for spec in sorted(specs) if name_in(spec.parent) == job), None)


def earlier_jobs(train: Training, job: str, cwd: Path) -> tuple[Earlier, ...]:
    """The newest jobs below runs/ that trained the same script in one start, the newest first; not `job`.

    Only jobs that finished, or with a known pace.  Only generated names count, as they contain the time.
    """
    if not train.digest:
        return ()
    names = are_default((path.parent.name for path in cwd.glob(f"runs/*/{SPEC}")), train.label)
    found = (_earlier_job(name, cwd / "runs" / name, train) for name in names[: MOST_LOOKED_AT + 1] if name != job)
    return tuple(islice((one for one in found if one is not None), MOST_READ))


def _earlier_job(name: str, path: Path, train: Training) -> Earlier | None:
    """The job if it had exactly one start and its duration is known; None otherwise, or if it cannot be read."""
    try:
        ended, setting = outcome.read(path), setting_in(_spec(path))
        seconds, done = took(ended, pace_of(path))
        if not seconds:
            return None
        if setting is None or not is_same_script(setting, train):
            return None
        if [start["then"] == "done" for start in _read_starts(path / STARTS)] != [done == 1]:
            return None
        kept = tuple(islice(_files(path), MOST_NAMED))
    except OSError:
        return None
    return Earlier(name, setting, seconds, kept, done)


def pace_of(folder: Path) -> Pace | None:
    """The progress of the script in a job's folder; None if its metrics do not have it or cannot be read."""
    try:
        return parse_pace((folder / PACE).read_bytes())
    except OSError:
        return None


def _files(folder: Path) -> Iterator[str]:
    """The names of files that a script wrote into its run folder, without installed packages.

    Lazily: there may be millions.
    """
    for top, folders, files in os.walk(folder):
        if Path(top) == folder:  # without the toolkit's own .in-use
            folders[:], files = (
                [name for name in names if name not in TOOLKIT_FILES and not name.startswith(".")]
                for names in (folders, files)
            )
        folders.sort()
        for name in sorted(files):
            yield (Path(top) / name).relative_to(folder).as_posix()


def details(job: ResolvedJob) -> dict[str, object]:
    """Details by which later jobs of the same script compare themselves with this one: see launch.core.earlier."""
    return {"train": list(job.train.words), "where": where(job)}


def where(job: ResolvedJob) -> dict[str, object]:
    """The machines of a job, described as on the other backends."""
    options = job.options
    gpus = options.gpus_per_node or 0
    of_type = f"{options.gpu_type} " if options.gpu_type else ""
    each = f"{gpus} {of_type}GPU{'s' * (gpus != 1)}" if gpus else "no GPU"
    kind = f"{each} in {options.partition or 'the default partition'}"
    counting = options.model_dump(mode="json", include=set(COUNTING))
    return {**counting, "nodes": options.nodes, "instance_type": [kind], "nproc_per_node": job.processes}


def note(folder: Path, name: str, ids: Sequence[str], **more: object) -> None:
    """Write the job's name and Slurm ids into its folder.  more: fields of jobs of a batch."""
    spec = {"job": name, "backend": BACKEND.name, "ids": list(ids), **more}
    write_atomically(folder / SPEC, json.dumps(spec, indent=1) + "\n")
