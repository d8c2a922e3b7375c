"""Where the images of one half of a data set come from, by number, and the source that reads files of a folder.

The list of those files is kept on disk, since listing a million takes long.
"""

import hashlib
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Protocol, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.datasets.cache import Content, cache_path, recall
from trainer.datasets.encoded import UnreadableError
from trainer.datasets.order import Order
from trainer.datasets.tree import Files, Tree, list_files
from trainer.errors import one_line

CUT_OFF = "its shard is cut off"


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


class PackedNames(Sequence[str]):
    """Names as bytes behind each other, mapped from the cache: a million strings of Python's would take 100 MB a rank.

    text: (bytes,) uint8; ends: (names,) int64, where each one ends.
    """

    def __init__(self, text: Tensor, ends: Tensor) -> None:
        self._text, self._ends = text.numpy(), ends.numpy()

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, number: int) -> str: ...

    @overload
    def __getitem__(self, number: slice) -> list[str]: ...

    def __getitem__(self, number: int | slice) -> str | list[str]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        number = range(len(self))[number]
        start = int(self._ends[number - 1]) if number else 0
        return os.fsdecode(self._text[start : int(self._ends[number])].tobytes())


def indexed_files(cache_dir: Path, tree: Tree) -> tuple[Files, Files]:
    """The images to train and to evaluate on.  Raises DataError naming a class without images."""
    return _indexed(cache_dir, tree.train, tree.classes), _indexed(cache_dir, tree.evaluation, tree.classes)


def _indexed(cache_dir: Path, root: Path, classes: tuple[str, ...]) -> Files:
    content = recall(
        cache_path(cache_dir, "index", root),
        is_current=lambda found: found.get("classes") == list(classes) and _unchanged(root, found["folders"]),
        build=lambda: _packed(list_files(root, classes), classes),
    )
    names = PackedNames(content["names"], content["ends"])
    return Files(root, names, content["labels"].numpy(), content["folders"])


def _packed(files: Files, classes: tuple[str, ...]) -> Content:
    names = [os.fsencode(name) for name in files.names]
    ends = np.cumsum(np.fromiter(map(len, names), np.int64, len(names)))
    return {
        "classes": list(classes),
        "names": torch.frombuffer(bytearray(b"".join(names)), dtype=torch.uint8),
        "ends": torch.from_numpy(ends),
        "labels": torch.tensor(files.labels),
        "folders": files.folders,
    }


def _unchanged(root: Path, folders: dict[str, int]) -> bool:
    """Whether no file came or went: that changes the modification time of its folder."""
    try:
        return all((root / name).stat().st_mtime_ns == time for name, time in folders.items())
    except FileNotFoundError:
        return False
