"""Shards in S3 (`--data-url s3://BUCKET/FOLDER`), downloaded ahead of their use into a folder of limited size.

reading() is given all images that this rank still has to read in the epoch.  So shards are fetched in the order of
their first use, as far ahead as the limit allows, and deleted after their last use.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.datasets.base import Request
from trainer.datasets.bucket import Bucket, Cache
from trainer.datasets.manifest import MANIFEST, Half, Shard, read_manifest
from trainer.datasets.order import Order
from trainer.datasets.source import Halves, ShardSource, numbers_by_shard, read_index
from trainer.errors import DataError, SettingsError, TrainerError, one_line

GB = 1e9
AT_ONCE = 8  # shards downloaded in parallel; one connection to S3 reaches about 90 MB/s

Numbers = NDArray[np.uint32]
STREAM = 2  # of Order's random numbers; 0 is used for permutations, 1 to augment small images


def open_remote(request: Request, url: str) -> Halves:
    """Both halves of the prepared folder at `url`.  Raises TrainerError."""
    bucket = Bucket(url)
    try:
        manifest = read_manifest(json.loads(text := bucket.read(MANIFEST)), f"{bucket.url}/{MANIFEST}")
    except (ValueError, RecursionError) as error:
        raise DataError(f"{bucket.url}/{MANIFEST} is damaged ({one_line(error)}); publish the data again.") from error
    limit = request.data_cache_gb * GB
    both = (manifest.splits.train, manifest.splits.val)
    cache = Cache(bucket, request.cache_dir.expanduser() / "shards")
    keeps = sum(half.bytes for half in both) <= limit

    def opened(half: Half) -> ShardSource:
        index = read_index(cache.fetch(half.index.file, half.index.sha256), half)
        return ShardSource(half, index, FetchingPool(cache, half.shards, limit, request.shuffle_shards, keeps))

    # The digest, not the URL, is the cache key of decoded small images: the data at a URL may change.
    place = Path("/s3", hashlib.sha256(text).hexdigest())
    return Halves(opened(both[0]), opened(both[1]), manifest.classes, place, manifest.eval_split)


class FetchingPool:
    """The shards of one half, fetched from a bucket.

    limit_bytes: maximum size of the shards in the cache folder; window: how many shards are shuffled together; keeps:
    everything fits, so nothing is deleted and later epochs download nothing.
    """

    def __init__(self, cache: Cache, shards: Sequence[Shard], limit_bytes: float, window: int, keeps: bool) -> None:
        self.place = f"{cache.bucket.url}/{shards[0].file.partition('/')[0]}"
        self._cache, self._shards, self._limit, self._window, self._keeps = cache, shards, limit_bytes, window, keeps
        self._current: _Reading | None = None
        self._by_shard: list[Tensor] | None = None

    def path(self, shard: int) -> Path:
        return self._cache.path(self._shards[shard].sha256)

    def lend(self, shard: int) -> str:
        assert self._current is not None, "inside reading() only"
        return self._current.lend(shard)

    def give_back(self, shard: int) -> None:
        if self._current is not None:  # otherwise the reading has ended, and closed its files
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
        """Fetch a shard.  Return the descriptor of its open file."""
        one = self._shards[shard]
        while True:
            try:
                return os.open(self._cache.fetch(one.file, one.sha256, one.bytes), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # another rank, which is ahead, has just deleted it
                continue

    def _drop(self, shard: int) -> None:
        """Delete a shard after this rank's last use.  Ranks that still read it have it open."""
        if not self._keeps:
            self.path(shard).unlink(missing_ok=True)


class _Reading:
    """One pass over images, which fetches shards in the order of their first use while there is room."""

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
        self._held = 0.0  # bytes of shards that are fetched or being fetched, and still needed
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

    def lend(self, shard: int) -> str:
        """A path to this process's open file of the shard, once fetched; another rank may delete the cached file.

        Valid for one image, until give_back(shard).  Raises TrainerError if it cannot be fetched.
        """
        file = self._file(shard).result()
        return f"/proc/{os.getpid()}/fd/{file}" if sys.platform == "linux" else f"/dev/fd/{file}"

    def _file(self, shard: int) -> Future[int]:
        with self._lock:
            while shard not in self._files:
                # Needed before the last images of earlier shards were read.  Other threads read those, or none does if
                # the training has stopped: so fetch now, without waiting for room.
                self._start()
            return self._files[shard]

    def give_back(self, shard: int) -> None:
        """Record that an image was read; after a shard's last image, make room for other shards."""
        with self._lock:
            self._left[shard] -= 1
            if self._left[shard] != 0:
                return
            file = self._files.pop(shard)
        try:
            with suppress(TrainerError):  # already raised to the reader
                os.close(file.result())
                self._drop(shard)
        finally:  # the room is free only after the file is deleted
            with self._lock:
                self._held -= float(self._sizes[shard])
                self._start_more()

    def _start_more(self) -> None:
        """Start to fetch as many shards as there is room for."""
        while self._next is not None and self._held + self._sizes[self._next] <= self._limit:
            self._start()

    def _start(self) -> None:
        """Start to fetch the next shard."""
        assert self._next is not None, "only announced images are read"
        self._held += float(self._sizes[self._next])
        self._files[self._next] = self._threads.submit(self._fetch, self._next)
        self._next = next(self._to_fetch, None)


def in_order_of_use(shards: Numbers) -> list[int]:
    """Each shard once, in the order of its first image.  shards: the shard of each image to be read."""
    found, first = np.unique(shards, return_index=True)
    numbers: list[int] = found[np.argsort(first)].tolist()
    return numbers


def most_at_once(shards: Numbers, sizes: NDArray[np.int64]) -> int:
    """The peak size in bytes of the shards in use at the same time.  shards: the shard of each image to be read."""
    if not len(shards):
        return 0
    found, first = np.unique(shards, return_index=True)
    last = len(shards) - 1 - np.unique(shards[::-1], return_index=True)[1]
    change = np.zeros(len(shards) + 1, np.int64)
    np.add.at(change, first, sizes[found])
    np.add.at(change, last + 1, -sizes[found])
    return int(np.cumsum(change).max())


def bounded_permutation(order: Order, by_shard: Sequence[Tensor], window: int) -> Tensor:
    """(size,) int64: the image at each position of the epoch.  by_shard: the numbers of each shard's images.

    Shards come in random order, and the images of `window` consecutive ones are shuffled together, so that only a few
    shards are needed at a time.  Like the full permutation it is a pure function (of seed, epoch, shards and window),
    so resuming is exact, batches are the same for any number of ranks, and each image comes once.  The shards must be
    random samples of the whole set, as trainer.prepare makes them.
    """
    return torch.cat(list(_windows(order.generator(STREAM), by_shard, window)))


def _windows(generator: torch.Generator, by_shard: Sequence[Tensor], window: int) -> Iterator[Tensor]:
    for shards in torch.randperm(len(by_shard), generator=generator).split(window):
        numbers = torch.cat([by_shard[shard] for shard in shards.tolist()])
        yield numbers[torch.randperm(len(numbers), generator=generator)]
