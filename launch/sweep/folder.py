"""A sweep's folder: whose it is, that one sweep at a time works in it, and what jobs leave elsewhere brought here."""

import fcntl
import hashlib
import json
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from launch.core.runs import read_epochs
from launch.slurm.lookup import read_folder
from launch.sweep.spec import Spec
from trainer.contract import METRICS
from trainer.errors import MachineError, SettingsError

SWEEP, LOCK = "sweep.json", ".lock"
JOB_NAME_LENGTH = 48  # of launch.core.names


@contextmanager
def opened(out: Path, spec: Spec, backend: str, *, rehearse: bool) -> Iterator[str]:
    """The sweep's id, from its folder, which is made; nobody else's sweep may use it meanwhile.

    Raises SettingsError if somebody's does, or it is another sweep's folder; MachineError if it cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / LOCK).open("a")
    except OSError as error:
        raise MachineError(f"cannot write to {out} ({error.strerror}); give another --out.") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # goes with the process, however it ends
        except OSError:
            raise SettingsError(f"another sweep is at work in {out}; wait for it, or give another --out.") from None
        yield _identity(out / SWEEP, {"name": spec.name, "backend": backend, "rehearse": rehearse}, spec.about)


def _identity(path: Path, told: Mapping[str, Any], about: str) -> str:
    if path.exists():
        try:
            written = json.loads(path.read_text())
            before, identity = {name: written[name] for name in told}, str(written["id"])
        except (ValueError, TypeError, KeyError) as error:
            raise SettingsError(f"{path} cannot be read ({error}); give another --out.") from error
        if before != told:
            was = "rehearsed" if before["rehearse"] else f"on {before['backend']}"
            raise SettingsError(f"{path.parent} has the sweep {before['name']}, {was}; give another --out.")
        return identity
    identity = uuid.uuid4().hex[:8]
    path.write_text(json.dumps({**told, "id": identity, "about": about}, indent=2) + "\n")
    return identity


def job_name(sweep: str, run: str, identity: str) -> str:
    """What a backend calls a run.  No two sweeps' are alike: a launcher would take one for the other, and join it."""
    own = hashlib.sha256(f"{identity}\n{run}".encode()).hexdigest()[:6]
    stem = re.sub(r"[^A-Za-z0-9]+", "-", f"{sweep}-{run}")[: JOB_NAME_LENGTH - 7].strip("-")
    return f"{stem}-{own}"


def bring(job: str, results: Path, folder: Path) -> None:
    """Moves what a launcher left of `job` in `results` into the run's folder, older starts first.

    A job that SageMaker started again is called JOB--2.
    """
    if not results.is_dir():
        return
    found = [place for place in results.iterdir() if re.fullmatch(rf"{re.escape(job)}(--\d+)?", place.name)]
    for place in sorted(found, key=lambda one: (len(one.name), one.name)):
        shutil.copytree(place, folder, dirs_exist_ok=True, copy_function=shutil.move)
        shutil.rmtree(place, ignore_errors=True)


def on_nodes_s(folder: Path) -> float:
    """How long Slurm gave a run its nodes so far, in all its starts that ended; the queue costs nothing."""
    return sum(float(start["ended"] - start["began"]) for start in read_folder(folder).starts)


def keep_records(folder: Path, heard: Mapping[int, Mapping[str, Any]], known: Mapping[str, Any]) -> None:
    """Writes metrics.jsonl from what a job said, where the job's own cannot be had; `known`: what is no number."""
    path = folder / METRICS
    records = {int(record["epoch"]): record for record in read_epochs(folder)}
    records |= {epoch: {**known, **record} for epoch, record in heard.items()}
    temporary = path.with_suffix(".tmp")
    temporary.write_text("".join(json.dumps(records[epoch]) + "\n" for epoch in sorted(records)))
    temporary.replace(path)
