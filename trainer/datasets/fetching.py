"""Shards that are fetched whole, ahead of their use, into a folder that may hold so many bytes.

What will be read is known: reading() is told every image of the epoch that this rank still has to see.  So shards are
fetched in the order of their first use, as far ahead as there is room, and dropped after their last one.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trainer.datasets.bounded import bounded_permutation
from trainer.datasets.bucket import Bucket
from trainer.datasets.manifest import Shard
from trainer.datasets.shards import numbers_by_shard
from trainer.distributed.sampler import Order
from trainer.errors import DataError, FullDisk, MachineError, SettingsError, TrainerError, is_full, one_line
from trainer.files import open_lock

AT_ONCE = 8  # shards: one connection to S3 brings some 90 MB/s
ATTEMPTS = 2
_LOOK_EVERY_S = 0.05

Numbers = NDArray[np.uint32]


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


class FetchingShelf:
    """The shards of one half, out of a bucket.  limit_bytes: of shards in the folder; window: of the order's mixing.

    keeps: everything fits, so nothing is dropped and a later epoch fetches nothing.
    """

    def __init__(self, cache: Cache, shards: Sequence[Shard], limit_bytes: float, window: int, keeps: bool) -> None:
        self.place = f"{cache.bucket.url}/{shards[0].file.partition('/')[0]}"
        self._cache, self._shards, self._limit, self._window, self._keeps = cache, shards, limit_bytes, window, keeps
        self._current: _Reading | None = None
        self._by_shard: list[Tensor] | None = None

    def read(self, shard: int, offset: int, length: int) -> bytes:
        assert self._current is not None, "inside reading() only"
        return self._current.read(shard, offset, length)

    def peek(self, shard: int, offset: int, length: int) -> bytes:
        """Its images may all have been read, and the shard dropped: read() would wait for it."""
        try:
            with self._cache.path(self._shards[shard].sha256).open("rb", buffering=0) as file:
                return os.pread(file.fileno(), length, offset)
        except FileNotFoundError:
            return b""

    def lend(self, shard: int) -> str:
        assert self._current is not None, "inside reading() only"
        return self._current.lend(shard)

    def give_back(self, shard: int) -> None:
        if self._current is not None:  # else the reading has ended, and what was lent with it
            self._current.give_back(shard)

    def permutation(self, order: Order, shard_of: Numbers) -> Tensor:
        if self._by_shard is None:
            self._by_shard = numbers_by_shard(shard_of, len(self._shards))
        return bounded_permutation(order, self._by_shard, self._window)

    @contextmanager
    def reading(self, shards: Numbers) -> Iterator[None]:
        sizes = np.array([shard.bytes for shard in self._shards])
        needed = most_at_once(shards, sizes)
        if needed > self._limit:
            raise SettingsError(
                f"--data-cache-gb {self._limit / 1e9:g} is less than the {needed / 1e9:.3g} GB of shards that are read "
                "at once; give more, or a smaller --shuffle-shards."
            )
        reading = _Reading(self._fetch, self._drop, shards, sizes, self._limit)
        before, self._current = self._current, reading
        try:
            with reading:
                yield
        finally:
            self._current = before

    def _fetch(self, shard: int) -> int:
        """The open file of a shard."""
        one = self._shards[shard]
        while True:
            try:
                return os.open(self._cache.fetch(one.file, one.sha256, one.bytes), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # another rank, which is ahead, has dropped it this moment
                continue

    def _drop(self, shard: int) -> None:
        """After this rank's last use: a rank that still reads it has it open."""
        if not self._keeps:
            self._cache.path(self._shards[shard].sha256).unlink(missing_ok=True)


class _Reading:
    """One pass over images: fetches shards in the order of their first use, while there is room for them."""

    def __init__(
        self,
        fetch: Callable[[int], int],
        drop: Callable[[int], None],
        shards: Numbers,
        sizes: NDArray[np.int64],
        limit: float,
    ) -> None:
        self._fetch, self._drop, self._sizes, self._limit = fetch, drop, sizes, limit
        self._left = np.bincount(shards, minlength=len(sizes))  # images still to be read, by shard
        self._files: dict[int, Future[int]] = {}
        self._to_fetch = iter(in_order_of_use(shards))
        self._next = next(self._to_fetch, None)
        self._held = 0.0  # bytes of shards that are fetched, or being fetched, and not yet done with
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fetch")

    def __enter__(self) -> None:
        with self._lock:
            self._start_more()

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)
        for file in self._files.values():
            if not file.cancelled() and file.exception() is None:
                os.close(file.result())

    def read(self, shard: int, offset: int, length: int) -> bytes:
        """So many bytes, once the shard is here.  Raises TrainerError if it cannot be had."""
        try:
            return os.pread(self._file(shard).result(), length, offset)
        finally:
            self.give_back(shard)

    def lend(self, shard: int) -> str:
        """The path of this process's open file, once the shard is here: another rank may delete the one in the cache.

        For one image, until give_back(shard).  Raises TrainerError if it cannot be had.
        """
        return f"/proc/{os.getpid()}/fd/{self._file(shard).result()}"

    def _file(self, shard: int) -> Future[int]:
        with self._lock:
            while shard not in self._files:
                # Its turn has come before the last images of earlier ones were read, which other threads do, or never
                # will if the training has stopped: it must not wait for them.
                self._start()
            return self._files[shard]

    def give_back(self, shard: int) -> None:
        """Notes that an image was read; after a shard's last one, makes room for others."""
        with self._lock:
            self._left[shard] -= 1
            if self._left[shard] != 0:
                return
            file = self._files.pop(shard)
        try:
            with suppress(TrainerError):  # whoever read has had it
                os.close(file.result())
                self._drop(shard)
        finally:  # there is no room before it is gone
            with self._lock:
                self._held -= float(self._sizes[shard])
                self._start_more()

    def _start_more(self) -> None:
        """Starts to fetch what there is room for."""
        while self._next is not None and self._held + self._sizes[self._next] <= self._limit:
            self._start()

    def _start(self) -> None:
        """Starts to fetch the next shard."""
        assert self._next is not None, "nothing is read that was not announced"
        self._held += float(self._sizes[self._next])
        self._files[self._next] = self._threads.submit(self._fetch, self._next)
        self._next = next(self._to_fetch, None)


def in_order_of_use(shards: Numbers) -> list[int]:
    """Each shard once, in the order of its first image.  shards: of each image to be read."""
    found, first = np.unique(shards, return_index=True)
    numbers: list[int] = found[np.argsort(first)].tolist()
    return numbers


def most_at_once(shards: Numbers, sizes: NDArray[np.int64]) -> int:
    """Bytes of the shards that are begun and not done with, where they are most.  shards: of each image to be read."""
    if not len(shards):
        return 0
    found, first = np.unique(shards, return_index=True)
    last = len(shards) - 1 - np.unique(shards[::-1], return_index=True)[1]
    change = np.zeros(len(shards) + 1, np.int64)
    np.add.at(change, first, sizes[found])
    np.add.at(change, last + 1, -sizes[found])
    return int(np.cumsum(change).max())
