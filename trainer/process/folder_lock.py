"""A lock on a folder that one run writes to: which process owns it, and whether that process is still alive.

The file .in-use in the folder names the process.  The kernel releases flock on it when the process ends, also for a
process in another container of this machine, and for one on another host where the file system supports that.  Not all
do (for Lustre and NFS it depends on mount options), so the owner also touches the file every few seconds: an owner on
another host that does not is dead.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainer.errors import MachineError, one_line
from trainer.files import open_lock, read_regular

IN_USE = ".in-use"
TOUCH_EVERY_S = 5.0
# An owner on another host that has not touched the file for so long is dead.
DEAD_AFTER_S = 30.0
LOOK_EVERY_S = 0.5
_KEEP_OUT_EVERY_S = 0.05
LARGEST = 10_000  # bytes of the file


@dataclass(frozen=True)
class Owner:
    """The process that has the lock.  since: UTC, ISO 8601, to the microsecond, so that no two owners are equal.

    run: what the other processes of its run have in common with it, and those of no other; empty where there are none.
    """

    host: str
    process: int
    since: str
    run: str = ""


class Taken(MachineError):
    """Another run has the folder."""


class FolderLock:
    """This process's lock on `folder`, which must exist.

    on_lost: called in a thread with the process that took the lock over, because this one was suspended for longer than
    DEAD_AFTER_S.  run: see Owner.
    """

    def __init__(self, folder: Path, on_lost: Callable[[Owner], None], run: str = "") -> None:
        self._path, self._on_lost = folder / IN_USE, on_lost
        self._me = Owner(socket.gethostname(), os.getpid(), datetime.now(UTC).isoformat(), run)
        self._over = threading.Event()
        self._file: int | None = None

    def take(self, *, may_wait: bool = True) -> None:
        """Takes the lock, also from a dead process.  Raises Taken, and OSError if the file cannot be written.

        may_wait: wait up to DEAD_AFTER_S for a sign of life of an owner on another host, which else counts as alive.
        """
        self._file, is_certain = self._open()
        if owner := self._living_owner(self._file, is_certain, may_wait):
            self._close()
            raise Taken(_refusal(self._path.parent, owner))
        self._write(self._file)
        if not is_certain:
            time.sleep(LOOK_EVERY_S)  # of two that come at the same moment the later has written over the other
            if (owner := _read(self._file)) != self._me:
                self._close()
                raise Taken(_refusal(self._path.parent, owner))
        threading.Thread(target=self._keep, name="folder lock", daemon=True).start()

    def release(self) -> None:
        """Releases the lock."""
        if self._file is None or self._over.is_set():
            return
        self._over.set()
        with suppress(OSError):
            if _read(self._file) == self._me:
                self._path.unlink(missing_ok=True)
        self._close()

    def _open(self) -> tuple[int, bool]:
        """The open file, and whether the kernel has granted us flock on it.  Raises Taken."""
        while True:
            file = open_lock(self._path)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    return file, False  # this file system has no locks
                owner = _read(file)
                os.close(file)
                raise Taken(_refusal(self._path.parent, owner)) from error
            with suppress(OSError):
                if os.path.samestat(os.fstat(file), self._path.stat()):
                    return file, True
            os.close(file)  # its owner has just removed it

    def _living_owner(self, file: int, is_certain: bool, may_wait: bool) -> Owner | None:
        owner = _read(file)
        if owner is None or (is_certain and owner.host == self._me.host):
            return None
        seen = os.fstat(file).st_mtime_ns
        until = time.monotonic() + DEAD_AFTER_S - _age_s(self._path, seen)
        while time.monotonic() < until:
            if not may_wait or os.stat(self._path).st_mtime_ns != seen:
                return owner
            time.sleep(LOOK_EVERY_S)
        return None

    def _write(self, file: int) -> None:
        data = json.dumps(asdict(self._me)).encode()
        os.ftruncate(file, 0)
        os.pwrite(file, data, 0)

    def _keep(self) -> None:
        """Touches the file now and then, and calls on_lost if another process has taken the lock over."""
        while not self._over.wait(TOUCH_EVERY_S):
            with suppress(OSError):
                owner = _parsed(read_regular(self._path, LARGEST))
                if owner is not None and owner != self._me:
                    self._over.set()
                    self._on_lost(owner)
                    return
                os.utime(self._path)

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def another(folder: Path, run: str) -> Owner | None:
    """Who of another run has the lock on `folder`, or had it less than DEAD_AFTER_S ago; for processes that take none.

    run: see Owner.
    """
    path = folder / IN_USE
    with suppress(OSError):  # there is none
        owner, touched = _parsed(read_regular(path, LARGEST)), path.stat().st_mtime_ns
        if owner is not None and owner.run != run and _age_s(path, touched) < DEAD_AFTER_S:
            return owner
    return None


def keep_out(folder: Path, run: str) -> None:
    """Returns once the lock on `folder` is that of this run, or a dead one's, or not there.

    For processes that take none, beside one that does.  Raises Taken as soon as another run gives a sign of life.
    """
    first = _touched_ns(folder)
    while owner := another(folder, run):
        if _touched_ns(folder) != first and another(folder, run) == owner:  # not: this run has just taken it over
            raise Taken(_refusal(folder, owner))
        time.sleep(_KEEP_OUT_EVERY_S)


def _touched_ns(folder: Path) -> int:
    with suppress(OSError):
        return (folder / IN_USE).stat().st_mtime_ns
    return 0


def _read(file: int) -> Owner | None:
    return _parsed(os.pread(file, LARGEST, 0))


def _parsed(data: bytes) -> Owner | None:
    """The owner in the content of the file; None if it is empty or damaged."""
    try:
        content: Any = json.loads(data)
        return Owner(str(content["host"]), int(content["process"]), str(content["since"]), str(content.get("run", "")))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def _age_s(path: Path, modified_ns: int) -> float:
    """The seconds since `modified_ns` by the file system's clock, which may differ from this host's."""
    probe = path.with_name(f"{IN_USE}.{os.getpid()}")
    with probe.open("wb") as file:
        now_ns = os.fstat(file.fileno()).st_mtime_ns
    probe.unlink()
    return max(0.0, (now_ns - modified_ns) / 1e9)


def _refusal(folder: Path, owner: Owner | None) -> str:
    if owner is None:
        who = "another process"
    else:
        since = one_line(owner.since.partition(".")[0].replace("T", " "), 40)  # a stranger may have written it
        who = f"process {one_line(owner.process)} on host {one_line(owner.host)}, since {since} UTC"
    return f"{folder} is in use by {who}; give another folder, or wait until that run has ended."
