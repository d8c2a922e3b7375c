"""Files of a bucket in a folder of this machine, which its ranks fetch once."""

import fcntl
import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainer.datasets.bucket import Bucket
from trainer.errors import DataError, FullDisk, MachineError, is_full, one_line
from trainer.files import open_lock

ATTEMPTS = 2
_LOOK_EVERY_S = 0.05


class Cache:
    """Files of a bucket in a folder of this machine, by their digest.  The ranks of a machine share it.

    largest: bytes of one, as far as that is known.
    """

    def __init__(self, bucket: Bucket, folder: Path, largest: float = math.inf) -> None:
        self.bucket, self._folder, self._largest = bucket, folder, largest

    def path(self, sha256: str) -> Path:
        """Where a file is once it is fetched."""
        return self._folder / f"{sha256}.shard"

    def fetch(self, name: str, sha256: str, size: int | None = None) -> Path:
        """The file, fetched unless it is there and whole.  Raises TrainerError.

        size: in bytes, which tells a file that a machine cut off when it stopped; None: the digest does.
        """
        path = self.path(sha256)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with _alone(path, lambda: _is_whole(path, sha256, size)) as part:
                if part is not None:
                    self._fill(name, sha256, part)
                    self._share(part)
                    part.replace(path)
        except OSError as error:
            sentence = f"cannot keep {name} in {self._folder} ({one_line(error.strerror or error)})"
            if is_full(error):
                raise FullDisk(f"{sentence}; lower --data-cache-gb, or give another --cache-dir.") from error
            raise MachineError(f"{sentence}; give another --cache-dir.") from error
        return path

    def _share(self, part: Path) -> None:
        """Lets whoever may read the folder read the file: a team may share it, and a lock's 0600 would keep it out."""
        with suppress(OSError):  # of another user's, or on a file system without modes
            part.chmod(0o600 | self._folder.stat().st_mode & 0o044)

    def _fill(self, name: str, sha256: str, part: Path) -> None:
        for _ in range(ATTEMPTS):
            self.bucket.fetch(name, part, self._largest)
            if _digest(part) == sha256:
                return
        raise DataError(f"{self.bucket.url}/{name} is not what was prepared; publish the data again.")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_whole(path: Path, sha256: str, size: int | None) -> bool:
    try:
        return _digest(path) == sha256 if size is None else path.stat().st_size == size
    except FileNotFoundError:
        return False


@contextmanager
def _alone(path: Path, is_there: Callable[[], bool]) -> Iterator[Path | None]:
    """Inside, no other thread or process fetches `path`: an empty file to fill, or None if it is there already."""
    part = path.with_suffix(".part")
    while True:
        file = open_lock(part)
        try:
            if not _locked(file, is_there):
                yield None
                return
            is_ours = _is(part, file)
            if is_there():
                if is_ours:
                    part.unlink()
                yield None
                return
            if is_ours:  # not the one that another has filled and renamed, and dropped since
                yield part
                return
        finally:
            os.close(file)


def _locked(file: int, is_there: Callable[[], bool]) -> bool:
    """Waits for the lock, which is free of an owner that died; False as soon as what it is for is there.

    Others may read what was fetched, and so keep the same file locked.
    """
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if is_there():
            return False
        time.sleep(_LOOK_EVERY_S)


def _is(path: Path, file: int) -> bool:
    """Whether `path` is still the name of the open file."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(file), path.stat())
    return False
