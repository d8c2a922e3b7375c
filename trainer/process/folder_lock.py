"""A lock on a folder that one run writes to: flock on the file .in-use in it, which names the process.

The kernel releases it when the process ends, also for a process in another container of this machine, and for one on
another host where the file system has locks, as NFS and EFS have, and FSx for Lustre if it is mounted
with flock.  Without them nothing keeps two runs apart.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from trainer.errors import MachineError
from trainer.files import open_lock

IN_USE = ".in-use"
# How often, and for how long in all, the lock is tried: another() holds it for an instant, and a process that was just
# killed for a moment.
TRIES, PAUSE_S = 10, 0.05


@dataclass(frozen=True)
class Owner:
    """The process that has the lock."""

    host: str
    process: int
    since: str  # UTC, ISO 8601
    run: str = ""  # what the other processes of its run have in common with it, and those of other runs do not


class Taken(MachineError):
    """Another run has the folder."""


class FolderLock:
    """This process's lock on `folder`, which must exist.  run: see Owner."""

    def __init__(self, folder: Path, run: str = "") -> None:
        self._path = folder / IN_USE
        self._me = Owner(socket.gethostname(), os.getpid(), datetime.now(UTC).isoformat(), run)
        self._file: int | None = None

    def take(self) -> None:
        """Take the lock.  Raises Taken, and OSError if the file cannot be written."""
        while True:
            file = open_lock(self._path)
            if not _is_free(file, fcntl.LOCK_EX, TRIES):
                owner = _read(file)
                os.close(file)
                raise Taken(_refusal(self._path.parent, owner))
            with suppress(OSError):
                if os.path.samestat(os.fstat(file), self._path.stat()):
                    break
            os.close(file)  # its owner has just removed it
        self._file = file
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(asdict(self._me)).encode(), 0)

    def release(self) -> None:
        """Release the lock, and remove its file."""
        if self._file is None:
            return
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        os.close(self._file)
        self._file = None


def another(folder: Path, run: str) -> Owner | None:
    """The owner of the lock on `folder` if it is of another run, else None; for processes that take none.

    run: see Owner.
    """
    try:
        file = os.open(folder / IN_USE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # there is none
        return None
    try:
        owner = None if _is_free(file, fcntl.LOCK_SH, 1) else _read(file)
    finally:
        os.close(file)
    return owner if owner is not None and owner.run != run else None


def keep_out(folder: Path, run: str) -> None:
    """Raise Taken if the lock on `folder` is another run's; for processes that take none, beside one that does."""
    owner = another(folder, run)
    if owner is None:
        return
    time.sleep(PAUSE_S)  # this run may just have taken the lock over, and not yet written its name
    if another(folder, run) == owner:
        raise Taken(_refusal(folder, owner))


def _is_free(file: int, operation: int, tries: int) -> bool:
    """Whether flock grants `operation`; True, too, where the file system has no locks."""
    for left in reversed(range(tries)):
        try:
            fcntl.flock(file, operation | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                return True
        else:
            return True
        if left:
            time.sleep(PAUSE_S)
    return False


def _read(file: int) -> Owner | None:
    """The owner that the file names; None if it is empty yet, or another version's."""
    try:
        return Owner(**json.loads(os.pread(file, 4096, 0)))
    except (ValueError, TypeError):
        return None


def _refusal(folder: Path, owner: Owner | None) -> str:
    if owner is None:
        who = "another process"
    else:
        since = owner.since.partition(".")[0].replace("T", " ")
        who = f"process {owner.process} on host {owner.host}, since {since} UTC"
    return f"{folder} is in use by {who}; give another folder, or wait until that run has ended."
