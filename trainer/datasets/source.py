"""Where the images of one half of a data set come from, by number: the files of a folder, or shards.

Of prepared shards the index says where each image lies, and a read is one pread.  It keeps the order of the folder or
archive that was prepared: image 7 of the shards is image 7 of the folder, and training on either is the same.
"""

import hashlib
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.datasets.base import Request
from trainer.datasets.encoded import UnreadableError
from trainer.datasets.manifest import HEADER, MANIFEST, Half, Manifest, Shard
from trainer.datasets.order import Order
from trainer.datasets.tree import Files
from trainer.errors import DataError, one_line
from trainer.files import digest_of

CUT_OFF = "its shard is cut off"
Entries = NDArray[Any]  # (N,) of ENTRY


class Piece(NamedTuple):
    """Where the bytes of an image are, for any process of this machine.  length: None for all of the file."""

    path: str
    offset: int = 0
    length: int | None = None

    def read(self) -> bytes:
        """Raises UnreadableError."""
        try:
            if self.length is None:
                return Path(self.path).read_bytes()
            data = _pread(self.path, self.length, self.offset)
        except OSError as error:
            raise UnreadableError(one_line(error.strerror or error)) from error
        if len(data) < self.length:
            raise UnreadableError(CUT_OFF)
        return data


def _pread(path: str, length: int, offset: int) -> bytes:
    """So many bytes, or fewer where the file ends; with the system's own calls, as a file object takes as long."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(file, length, offset)
    finally:
        os.close(file)


class Source(Protocol):
    """The encoded images of one half.  Threads, and processes, read beside each other."""

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    @property
    def place(self) -> str:
        """Where they are, for messages."""
        ...

    def label(self, number: int) -> int:
        """The class of an image."""
        ...

    def lend(self, number: int) -> Piece:
        """Where an image is, until give_back(number).  Raises TrainerError where none can be read."""
        ...

    def give_back(self, number: int) -> None:
        """Ends what lend() began."""
        ...

    def shown(self, number: int) -> str:
        """A name the user recognises."""
        ...

    def fingerprint(self) -> str:
        """Changes whenever an image is added, removed or written to.  Reads no image."""
        ...

    def sample(self, count: int) -> Tensor:
        """(n,) int64: about `count` images, the same at each start, from all classes; all images of a small set."""
        ...

    def permutation(self, order: Order) -> Tensor:
        """(size,) int64 on the CPU: the image at each position of an epoch.  The same on every rank."""
        ...

    def reading(self, numbers: Tensor) -> AbstractContextManager[object]:
        """Inside, these images are read, about in this order, and no others: what takes long to fetch is fetched ahead.

        numbers: (n,) int64.
        """
        ...


def read(source: Source, number: int) -> bytes:
    """The bytes of an image.  Raises UnreadableError if this one cannot be read, TrainerError if none can."""
    piece = source.lend(number)
    try:
        return piece.read()
    finally:
        source.give_back(number)


class FolderSource:
    """The files of a folder: nothing is fetched ahead, and any order is as good as another."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.size, self.place = len(files.names), str(files.root)

    def label(self, number: int) -> int:
        return int(self._files.labels[number])

    def lend(self, number: int) -> Piece:
        return Piece(f"{self._files.root}{os.sep}{self._files.names[number]}")

    def give_back(self, number: int) -> None:
        """Nothing to do."""

    def shown(self, number: int) -> str:
        return self._files.shown(number)

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        prefix = f"{self._files.root}{os.sep}"  # a Path for each file would double the time
        for name in self._files.names:
            digest.update(os.fsencode(f"{name}\0{_version(prefix + name)}\n"))
        return digest.hexdigest()

    def sample(self, count: int) -> Tensor:
        return torch.from_numpy(spread(np.asarray(self._files.labels), count))

    def permutation(self, order: Order) -> Tensor:
        return order.permutation

    def reading(self, numbers: Tensor) -> AbstractContextManager[object]:
        return nullcontext()


def spread(labels: NDArray[np.integer[Any]], count: int) -> NDArray[np.int64]:
    """The places of about `count` images, evenly over each class, at least one of each; of all if there are fewer."""
    if len(labels) <= count:
        return np.arange(len(labels))
    _, sizes = np.unique(labels, return_counts=True)
    starts, each = sizes.cumsum() - sizes, max(1, count // len(sizes))
    places = [starts + sizes * (2 * number + 1) // (2 * each) for number in range(each)]
    return np.sort(labels.argsort(kind="stable")[np.unique(places)])


def _version(path: str) -> str:
    """What changes when a file is written to; decoding says what is wrong with one that is not there."""
    try:
        status = os.stat(path)
    except OSError:
        return "unreadable"
    return f"{status.st_size} {status.st_mtime_ns}"


class Halves(NamedTuple):
    """A data set as it is found.

    place: the folder or address, for messages and caches; eval_split: what the folder to evaluate on is called.
    """

    train: Source
    evaluation: Source
    classes: tuple[str, ...]
    place: Path
    eval_split: str


# ---- Shards


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
        if digest_of(path) == half.index.sha256:
            return _mapped(path)
    except OSError as error:
        raise _missing(path, error) from error
    raise DataError(f"{one_line(path, 300)} is not the one that was prepared; copy or prepare the data again.")


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
