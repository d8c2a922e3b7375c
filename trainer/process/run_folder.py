"""The folder of a run's results: created, locked for this run, and removed if it stays empty."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from trainer.contract import OUTCOME
from trainer.errors import MachineError, not_writable
from trainer.files import open_lock

IN_USE = ".in-use"
# Attempts to get the lock, and the pause between them: another() holds it for an instant, and a process that was just
# killed for a moment.
TRIES, PAUSE_S = 10, 0.05


@dataclass(frozen=True)
class Owner:
    """The process that holds the lock."""

    host: str
    process: int
    since: str  # UTC, ISO 8601
    run: str = ""  # id of its run, shared by the run's processes


class Taken(MachineError):
    """The folder is locked by another run."""


class FolderLock:
    """This process's lock on `folder`, which must exist.  run: see Owner."""

    def __init__(self, folder: Path, run: str = "") -> None:
        self._path = folder / IN_USE
        self._me = Owner(socket.gethostname(), os.getpid(), datetime.now(UTC).isoformat(), run)
        self._file: int | None = None

    def __enter__(self) -> FolderLock:
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def take(self) -> None:
        """Acquire the lock.  Raises Taken, and OSError if the file cannot be written."""
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
    """The owner of the lock on `folder` if it belongs to another run, else None.  Does not acquire the lock.

    run: see Owner.
    """
    try:
        file = os.open(folder / IN_USE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # not locked
        return None
    try:
        owner = None if _is_free(file, fcntl.LOCK_SH, 1) else _read(file)
    finally:
        os.close(file)
    return owner if owner is not None and owner.run != run else None


def keep_out(folder: Path, run: str) -> None:
    """Raise Taken if another run holds the lock on `folder`.  For processes that do not acquire it themselves."""
    owner = another(folder, run)
    if owner is None:
        return
    time.sleep(PAUSE_S)  # our run may have just acquired the lock, and not yet written its owner
    if another(folder, run) == owner:
        raise Taken(_refusal(folder, owner))


def _is_free(file: int, operation: int, tries: int) -> bool:
    """Whether flock grants `operation`; also True if the file system does not support locks."""
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
    """The owner in the lock file; None if it is still empty, or from another version."""
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


class RunFolder:
    """The folder for a run's results, which claim() creates and locks.

    path: the folder.  is_named: the user has chosen it; otherwise a suffix is added if it is in use.  is_new: it must
    not exist yet.  checkpoint_dir: the user's folder for checkpoints, if any, which is locked too.
    """

    def __init__(self, path: Path, *, is_named: bool, is_new: bool = False, checkpoint_dir: Path | None = None) -> None:
        self.path = path
        self._is_named, self._is_new, self._checkpoint_dir = is_named, is_new, checkpoint_dir
        self._locks: list[FolderLock] = []
        self._made: list[Path] = []

    def claim(self) -> Path:
        """Create and lock the folder for this run, and return it.

        Raises Taken, and SettingsError or MachineError if it cannot be written to.
        """
        self.path = self._take_first_free()
        if self._checkpoint_dir is not None:
            try:
                self._take(self._checkpoint_dir)
            except OSError as error:
                raise not_writable(self._checkpoint_dir, error) from error
        with suppress(OSError):  # the outcome of an earlier run
            (self.path / OUTCOME).unlink(missing_ok=True)
        return self.path

    def for_outcome(self) -> Path | None:
        """The folder to write the outcome to, or None.

        None if the folder would be created only for this, unless the user named it, or belongs to another run.
        """
        if not self._locks:
            if not self._is_named:
                return None
            try:
                self._take(self.path)
            except (OSError, Taken):
                return None
        return self.path if self._is_named or _has_content(self.path) else None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for lock in self._locks:
            lock.release()
        for folder in self._made:
            with suppress(OSError):  # not empty
                folder.rmdir()

    def _take_first_free(self) -> Path:
        for folder in self._candidates():
            try:
                self._take(folder, is_new=self._is_new)
                return folder
            except Taken:
                if self._is_named:
                    raise
            except OSError as error:
                if self._is_new and isinstance(error, FileExistsError):
                    continue
                raise not_writable(folder, error) from error
        raise AssertionError("there is always another suffix")

    def _candidates(self) -> Iterator[Path]:
        yield self.path
        for number in itertools.count(2):
            yield self.path.with_name(f"{self.path.name}-{number}")

    def _take(self, folder: Path, *, is_new: bool = False) -> None:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(exist_ok=not is_new)
        self._made[:0] = missing
        lock = FolderLock(folder)
        lock.take()
        self._locks.append(lock)


def _has_content(folder: Path) -> bool:
    return any(path.name != IN_USE for path in folder.iterdir())
