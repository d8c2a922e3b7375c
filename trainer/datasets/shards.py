"""Prepared images in shards: the index says where each one lies, and a read is one pread of the shard.

Any order is as good as another on a disk, so images are shuffled over the whole set.  The index keeps the order of the
folder or archive that was prepared: image 7 of the shards is image 7 of the folder, and training on either is the same.
"""

import errno
import hashlib
import os
import resource
import threading
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.datasets.base import Request
from trainer.datasets.encoded import UnreadableError
from trainer.datasets.manifest import HEADER, MANIFEST, Half, Manifest, Shard
from trainer.datasets.source import CUT_OFF, Halves, Piece, spread
from trainer.distributed.sampler import Order
from trainer.errors import DataError, one_line

Entries = NDArray[Any]  # (N,) of ENTRY

SPARE_FILES = 256  # that a process may have open besides the shards


class Pool(Protocol):
    """The files of the shards of one half."""

    place: str

    def read(self, shard: int, offset: int, length: int) -> bytes:
        """So many bytes of a shard, or fewer where it ends.  Raises OSError, and TrainerError for one out of reach."""
        ...

    def peek(self, shard: int, offset: int, length: int) -> bytes:
        """As read(), for a look that was not announced; nothing where it would have to be fetched.  Raises OSError."""
        ...

    def lend(self, shard: int) -> str:
        """A path at which any process of this machine reads the shard, once for each image, until give_back(shard)."""
        ...

    def give_back(self, shard: int) -> None:
        """Ends what lend() began."""
        ...

    def reading(self, shards: NDArray[np.uint32]) -> AbstractContextManager[object]:
        """Inside, so many images are read from these shards, about in this order."""
        ...

    def permutation(self, order: Order, shard_of: NDArray[np.uint32]) -> Tensor:
        """As Source.permutation has it.  shard_of: (N,), where each image lies."""
        ...


class ShardSource:
    """The images that `index` lists, out of the shards in `pool`."""

    def __init__(self, half: Half, index: Entries, pool: Pool) -> None:
        self._half, self._index, self._pool = half, index, pool
        self.size, self.place = len(index), pool.place

    def label(self, number: int) -> int:
        return int(self._index[number]["label"])

    def read(self, number: int) -> bytes:
        shard, offset, length, _ = self._index[number].item()
        try:
            data = self._pool.read(shard, offset, length)
        except OSError as error:
            raise UnreadableError(one_line(error.strerror or error)) from error
        if len(data) < length:
            raise UnreadableError(CUT_OFF)
        return data

    def lend(self, number: int) -> Piece:
        shard, offset, length, _ = self._index[number].item()
        return Piece(self._pool.lend(shard), offset, length)

    def give_back(self, number: int) -> None:
        self._pool.give_back(int(self._index[number]["shard"]))

    def shown(self, number: int) -> str:
        """The shard, and the image's name in it."""
        shard, offset, _, _ = self._index[number].item()
        file = self._half.shards[shard].file
        try:
            header = self._pool.peek(shard, offset - HEADER, 100)  # its first 100 bytes are the name
        except OSError:
            header = b""
        name = header.partition(bytes(1))[0].decode(errors="replace")
        return one_line(f"{file}: {name or f'byte {offset}'}", 200)

    def fingerprint(self) -> str:
        return self._half.index.sha256 + " ".join(shard.sha256 for shard in self._half.shards)

    def sample(self, count: int) -> Tensor:
        """Of the first shards only, each of which holds images of all classes: others need not be fetched yet."""
        shard_of = self._index["shard"]
        last = np.searchsorted(np.bincount(shard_of).cumsum(), min(count, self.size))
        near = np.flatnonzero(shard_of <= last)
        chosen = near[spread(self._index["label"][near], count)]
        return torch.from_numpy(chosen[np.argsort(shard_of[chosen], kind="stable")])

    def permutation(self, order: Order) -> Tensor:
        return self._pool.permutation(order, self._index["shard"])

    def reading(self, numbers: Tensor) -> AbstractContextManager[object]:
        return self._pool.reading(self._index["shard"][numbers.numpy()])


class Folder:
    """Shards in a folder of this machine, or of a file system that it has mounted."""

    def __init__(self, root: Path, shards: Sequence[Shard]) -> None:
        self._paths = [root / shard.file for shard in shards]
        self.place = str(self._paths[0].parent)
        self._files: dict[int, int] = {}
        self._lock = threading.Lock()
        _allow_files(len(shards))
        weakref.finalize(self, _close, self._files)

    def read(self, shard: int, offset: int, length: int) -> bytes:
        file = self._files.get(shard)
        return os.pread(self._open(shard) if file is None else file, length, offset)

    def peek(self, shard: int, offset: int, length: int) -> bytes:
        return self.read(shard, offset, length)

    def _open(self, shard: int) -> int:
        with self._lock:
            if shard not in self._files:
                try:
                    self._files[shard] = os.open(self._paths[shard], os.O_RDONLY | os.O_CLOEXEC)
                except OSError as error:
                    raise _missing(self._paths[shard], error) from error
            return self._files[shard]

    def lend(self, shard: int) -> str:
        return str(self._paths[shard])

    def give_back(self, shard: int) -> None:
        """Nothing to do."""

    def reading(self, shards: NDArray[np.uint32]) -> AbstractContextManager[object]:
        return nullcontext()

    def permutation(self, order: Order, shard_of: NDArray[np.uint32]) -> Tensor:
        return order.permutation


def open_folder(request: Request, manifest: Manifest) -> Halves:
    """Both halves of the prepared folder that request.data_dir is.

    Raises DataError if a shard is missing or cut off, or if an index is not what was prepared.
    """
    root, splits = request.data_dir, manifest.splits
    both = [_half(root, half) for half in (splits.train, splits.val)]
    return Halves(both[0], both[1], manifest.classes, root / MANIFEST, manifest.eval_split)


def _half(root: Path, half: Half) -> ShardSource:
    for shard in half.shards:
        _check_size(root / shard.file, shard.bytes)
    return ShardSource(half, read_index(root / half.index.file, half), Folder(root, half.shards))


def read_index(path: Path, half: Half) -> Entries:
    """The index of `half`, mapped from the file, so that processes share its memory.  Raises DataError."""
    try:
        if _digest(path) == half.index.sha256:
            return _mapped(path)
    except OSError as error:
        raise _missing(path, error) from error
    raise DataError(f"{one_line(path, 300)} is not the one that was prepared; copy or prepare the data again.")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _mapped(path: Path) -> Entries:
    """The array in `path`; in memory of this process where its file system cannot map files, as some in user space."""
    try:
        mapped: Entries = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        mapped = np.load(path, allow_pickle=False)
    return mapped


def numbers_by_shard(shard_of: NDArray[np.uint32], shards: int) -> list[Tensor]:
    """For each shard, the numbers of its images, ascending."""
    numbers = torch.from_numpy(np.argsort(shard_of, kind="stable"))
    return list(numbers.split(np.bincount(shard_of, minlength=shards).tolist()))


def _check_size(path: Path, expected: int) -> None:
    try:
        found = path.stat().st_size
    except OSError as error:
        raise _missing(path, error) from error
    if found != expected:
        raise DataError(
            f"{one_line(path, 300)} has {found:,} bytes and {MANIFEST} says {expected:,}; copy it again, "
            "or run python -m trainer.prepare again."
        )


def _missing(path: Path, error: OSError) -> DataError:
    reason = one_line(error.strerror or error)
    hint = "; raise the limit (ulimit -n)" if error.errno == errno.EMFILE else ""
    return DataError(f"cannot read {one_line(path, 300)} ({reason}){hint}; copy or prepare the data again.")


def _allow_files(shards: int) -> None:
    """Raises this process's own limit of open files where many shards need it: by default it is often 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = soft + shards if soft >= SPARE_FILES else SPARE_FILES + shards
    if soft != resource.RLIM_INFINITY and shards > soft // 4:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )


def _close(files: dict[int, int]) -> None:
    for file in files.values():
        os.close(file)
