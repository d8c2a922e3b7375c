"""Sources of a half's encoded images, which are addressed by number: the files of a folder, or shards.

The index of prepared shards holds the position of each image, so a read is one pread.  It keeps the order of the folder
or archive that was prepared: image 7 of the shards is image 7 of the folder, and training on either is the same.
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
    """Where the bytes of an image are, valid in any process of this machine."""

    path: str
    offset: int = 0
    length: int | None = None  # None: the whole file

    def read(self) -> bytes:
        """Read the bytes.  Raises UnreadableError."""
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
    """Read `length` bytes, or fewer at the end of the file.  Opening a file object would double the time."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(file, length, offset)
    finally:
        os.close(file)


class Source(Protocol):
    """The encoded images of one half.  Several threads and processes may read at the same time."""

    @property
    def size(self) -> int:
        """The number of images."""
        ...

    @property
    def place(self) -> str:
        """Where the images are, for messages."""
        ...

    def label(self, number: int) -> int:
        """The class of an image."""
        ...

    def lend(self, number: int) -> Piece:
        """Where an image is, valid until give_back(number).  Raises TrainerError if no image can be read."""
        ...

    def give_back(self, number: int) -> None:
        """Release an image obtained from lend()."""
        ...

    def shown(self, number: int) -> str:
        """The image's name for messages."""
        ...

    def fingerprint(self) -> str:
        """A digest that changes whenever an image is added, removed or modified.  Reads no image."""
        ...

    def sample(self, count: int) -> Tensor:
        """(n,) int64: about `count` images from all classes, the same in every run; all images of a small set."""
        ...

    def permutation(self, order: Order) -> Tensor:
        """(size,) int64 on the CPU: the image at each position of an epoch.  The same on every rank."""
        ...

    def reading(self, numbers: Tensor) -> AbstractContextManager[object]:
        """Announce that only these images are read inside the block, roughly in this order, so they can be prefetched.

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
    """The files of a folder: no prefetching, and any order is equally fast."""

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
        prefix = f"{self._files.root}{os.sep}"  # a Path per file would double the time
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
    """The indices of about `count` images, evenly spread over each class, at least one per class; all if fewer."""
    if len(labels) <= count:
        return np.arange(len(labels))
    _, sizes = np.unique(labels, return_counts=True)
    starts, each = sizes.cumsum() - sizes, max(1, count // len(sizes))
    indices = [starts + sizes * (2 * number + 1) // (2 * each) for number in range(each)]
    return np.sort(labels.argsort(kind="stable")[np.unique(indices)])


def _version(path: str) -> str:
    """A string that changes when the file is modified.  A missing file is reported later, by decoding."""
    try:
        status = os.stat(path)
    except OSError:
        return "unreadable"
    return f"{status.st_size} {status.st_mtime_ns}"


class Halves(NamedTuple):
    """The encoded images of both halves of a data set."""

    train: Source
    evaluation: Source
    classes: tuple[str, ...]
    place: Path  # the folder or address, for messages and cache keys
    eval_split: str  # the name of the evaluation folder


# ---- Shards


class Pool(Protocol):
    """The shard files of one half."""

    place: str

    def path(self, shard: int) -> Path:
        """The path of a shard, which exists only if it was fetched already."""
        ...

    def lend(self, shard: int) -> str:
        """A path to the shard for any process of this machine.  Called once per image; valid until give_back(shard)."""
        ...

    def give_back(self, shard: int) -> None:
        """Release a path obtained from lend()."""
        ...

    def reading(self, shards: NDArray[np.uint32]) -> AbstractContextManager[object]:
        """Announce the shards of the images that are read inside the block, roughly in this order."""
        ...

    def permutation(self, order: Order, shard_of: NDArray[np.uint32]) -> Tensor:
        """As Source.permutation().  shard_of: (N,), the shard of each image."""
        ...


class ShardSource:
    """The images listed in `index`, read from the shards in `pool`."""

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
        """The shard's file name and the image's name in it."""
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
        """A sample from the first shards only, so that few are fetched.  Each shard holds images of all classes."""
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
    """Shards in a local or mounted folder."""

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
    """Both halves of the prepared folder request.data_dir.

    Raises DataError if a shard is missing or has the wrong size, or if an index does not match its digest.
    """
    root, splits = request.data_dir, manifest.splits
    both = [_half(root, half) for half in (splits.train, splits.val)]
    return Halves(both[0], both[1], manifest.classes, root / MANIFEST, manifest.eval_split)


def _half(root: Path, half: Half) -> ShardSource:
    for shard in half.shards:
        _check_size(root / shard.file, shard.bytes)
    return ShardSource(half, read_index(root / half.index.file, half), Folder(root, half.shards))


def read_index(path: Path, half: Half) -> Entries:
    """The index of `half`, memory-mapped so that processes share it.  Raises DataError."""
    try:
        if digest_of(path) == half.index.sha256:
            return _mapped(path)
    except OSError as error:
        raise _missing(path, error) from error
    raise DataError(f"{one_line(path, 300)} does not match its digest; copy or prepare the data again.")


def _mapped(path: Path) -> Entries:
    """The memory-mapped array in `path`; a copy in memory if the file system, such as some FUSE ones, cannot map."""
    try:
        mapped: Entries = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        mapped = np.load(path, allow_pickle=False)
    return mapped


def numbers_by_shard(shard_of: NDArray[np.uint32], shards: int) -> list[Tensor]:
    """For each shard, the numbers of its images in ascending order."""
    numbers = torch.from_numpy(np.argsort(shard_of, kind="stable"))
    return list(numbers.split(np.bincount(shard_of, minlength=shards).tolist()))


def _check_size(path: Path, expected: int) -> None:
    try:
        found = path.stat().st_size
    except OSError as error:
        raise _missing(path, error) from error
    if found != expected:
        raise DataError(
            f"{one_line(path, 300)} has {found:,} bytes, but {expected:,} according to {MANIFEST}; copy it again, or "
            "run python -m trainer.prepare again."
        )


def _missing(path: Path, error: OSError) -> DataError:
    reason = one_line(error.strerror or error)
    return DataError(f"cannot read {one_line(path, 300)} ({reason}); copy or prepare the data again.")
