"""Prepared images in shards: the index says where each one lies, and a read is one pread of the shard.

Any order is as good as another on a disk, so images are shuffled over the whole set.  The index keeps the order of the
folder or archive that was prepared: image 7 of the shards is image 7 of the folder, and training on either is the same.
"""

import hashlib
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
from trainer.datasets.order import Order
from trainer.datasets.source import Halves, Piece, spread
from trainer.errors import DataError, one_line

Entries = NDArray[Any]  # (N,) of ENTRY


class Pool(Protocol):
    """The files of the shards of one half."""

    place: str

    def path(self, shard: int) -> Path:
        """Where a shard is if it is here, for a look that was not announced."""
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
            header = Piece(str(self._pool.path(shard)), offset - HEADER, 100).read()  # a header begins with the name
        except UnreadableError:
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

    def path(self, shard: int) -> Path:
        return self._paths[shard]

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
    return DataError(f"cannot read {one_line(path, 300)} ({reason}); copy or prepare the data again.")
