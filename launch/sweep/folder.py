"""A sweep's folder: its lock and identity, the runs that are left to do, and the results of jobs."""

import fcntl
import hashlib
import json
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.core import runs
from launch.core.metrics import merged, place_of
from launch.core.runs import RUN, Run, read_epochs
from launch.sweep.grid import SweepFile
from launch.sweep.planned import SIZES, Planned
from launch.sweep.price import Price
from trainer.contract import METRICS
from trainer.errors import MachineError, SettingsError, one_line
from trainer.files import read_json, write_atomically

SWEEP, LOCK = "sweep.json", ".lock"
LOG = "log.txt"
# Subfolder for the launcher's outcome.json; the trainer's is in the run's folder itself.
LAUNCHER = "launcher"
JOB_NAME_LENGTH = 48  # of launch.aws.names


@contextmanager
def opened(out: Path, file: SweepFile) -> Iterator[str]:
    """Create the folder and lock it inside the block; yield the sweep's ID.

    Raises SettingsError if another sweep is using it or it belongs to another; MachineError if it cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / LOCK).open("ab")
    except OSError as error:
        raise MachineError(f"cannot write to {out} ({error.strerror}); give another --out.") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released with the process, however it ends
        except OSError:
            raise SettingsError(f"another sweep is running in {out}; wait for it, or give another --out.") from None
        yield _identity(out / SWEEP, file)


def check(out: Path, file: SweepFile) -> str:
    """The sweep's ID; empty if it has no folder yet.  Reads only.

    Raises SettingsError for a folder that belongs to another sweep.
    """
    return _identity(out / SWEEP, file) if (out / SWEEP).exists() else ""


def _identity(path: Path, file: SweepFile) -> str:
    """The ID in the folder's sweep.json, which is written if it is missing."""
    owner = {"name": file.name, "backend": file.backend, "rehearse": file.rehearse}
    if not path.exists():
        identity = uuid.uuid4().hex[:8]
        write_atomically(path, json.dumps({**owner, "id": identity, "about": file.about}, indent=2) + "\n")
        return identity
    try:
        content = read_json(path)
        earlier, identity = {name: content[name] for name in owner}, str(content["id"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SettingsError(f"{path} cannot be read ({error}); give another --out.") from error
    if earlier != owner:
        where = "rehearsed" if earlier["rehearse"] else f"on {earlier['backend']}"
        raise SettingsError(f"{path.parent} has the sweep {earlier['name']}, {where}; give another --out.")
    return identity


def job_name(sweep: str, run: str, identity: str) -> str:
    """The job name of a run, unique to the sweep, as otherwise a launcher would attach to another sweep's job."""
    own = hashlib.sha256(f"{identity}\n{run}".encode()).hexdigest()[:6]
    stem = re.sub(r"[^A-Za-z0-9]+", "-", f"{sweep}-{run}")[: JOB_NAME_LENGTH - 7].strip("-")
    return f"{stem}-{own}"


def collect_results(job: str, results: Path, folder: Path) -> None:
    """Move results that a launcher fetched for `job` into the run's folder, earlier starts first.

    A job that SageMaker has restarted is called JOB--2.  Files that the sweep itself writes are not overwritten, as
    they hold the state and cost of the run.  Raises SettingsError for a result that cannot be moved.
    """
    if not results.is_dir():
        return
    is_fetched = re.compile(rf"{re.escape(job)}(--\d+)?").fullmatch
    fetched = [place for place in results.iterdir() if is_fetched(place.name)]
    for place in sorted(fetched, key=lambda one: (len(one.name), one.name)):
        for name in (RUN, LOG, LAUNCHER):
            remove(place / name)
        try:
            shutil.copytree(place, folder, symlinks=True, dirs_exist_ok=True, copy_function=shutil.move)
        except shutil.Error as error:  # a file in place of a folder
            words = (
                f"{place} cannot be moved into {folder} ({one_line(error, 200)}); remove what conflicts, or all of it."
            )
            raise SettingsError(words) from error
        shutil.rmtree(place, ignore_errors=True)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it exists."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_records(folder: Path, logged: Sequence[Mapping[str, Any]], constants: Mapping[str, Any]) -> None:
    """Add records from a job's log to metrics.jsonl, if the job's own file is not available.

    constants: text fields of every record.  A record replaces an earlier one of the same epoch or step.
    """
    records = merged([*read_epochs(folder), *({**constants, **record} for record in logged)])
    write_atomically(folder / METRICS, "".join(json.dumps(record) + "\n" for record in records))


def lacks(folder: Path, logged: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a log has records that the folder's metrics.jsonl lacks.

    Records without an epoch or step are assumed to be all present or all missing.
    """
    known = {place_of(record) for record in read_epochs(folder)}
    return any(place_of(record) not in known for record in logged)


def earlier(planned: Sequence[Planned], out: Path, *, retry_failed: bool) -> dict[str, Run]:
    """The runs that earlier starts of the sweep have begun, by name.

    Raises SettingsError for a run with other settings.
    retry_failed: allows other settings for a run that failed before its first epoch, as they may fix it.
    """
    known = {run.name: runs.read(out / run.name) for run in planned if (out / run.name / RUN).exists()}
    for run in planned:
        before = known.get(run.name)
        if before is None or (retry_failed and before.state == "failed" and not before.epochs):
            continue
        _refuse_changes(run, before, out)
    return known


def _refuse_changes(run: Planned, before: Run, out: Path) -> None:
    if changes := _changes(run, before):
        raise SettingsError(
            f"{out / run.name} has a run with other settings ({changes}); give another --out, or remove it."
        )


def _changes(run: Planned, before: Run) -> str:
    """Which settings differ, in words; empty if none does.

    Only options count that affect the measurements, unlike a time limit.
    """
    counted = {*SIZES, *run.point}
    now = {"backend": run.backend.name, **_only(run.shown_options, counted), **run.settings}
    then = {"backend": before.backend, **_only(before.options, counted), **before.settings}
    names = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    return ", ".join(f"{name} was {then.get(name)}, now {now.get(name)}" for name in names[:3])


def _only(values: Mapping[str, object], names: set[str]) -> dict[str, object]:
    return {name: value for name, value in values.items() if name in names}


def left(planned: Sequence[Planned], before: Mapping[str, Run], *, retry_failed: bool) -> list[Planned]:
    """The runs to do: all but those that are done, and but failed ones unless they are to be retried."""
    finished = ("done",) if retry_failed else ("done", "failed")
    return [run for run in planned if run.name not in before or before[run.name].state not in finished]


@dataclass(frozen=True)
class Work:
    """A sweep's runs."""

    runs: Sequence[Planned]
    todo: Sequence[Planned]  # to do now, in order
    prices: Mapping[str, Price]  # of those to do
    before: Mapping[str, Run]  # runs begun earlier
    others: Sequence[Run] = ()  # earlier runs that are no longer in the sweep's file, or not selected now


def others(planned: Sequence[Planned], out: Path) -> list[Run]:
    """The readable runs in `out` that are not planned, such as those of an earlier, larger grid."""
    names = {run.name for run in planned}
    found = []
    for mark in sorted(out.glob(f"*/{RUN}")):
        with suppress(SettingsError):
            if mark.parent.name not in names:
                found.append(runs.read(mark.parent))
    return found
