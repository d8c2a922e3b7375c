"""Compact lists of the images in a source, with their labels and positions: 70 MB for a million, not 1,000."""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer.datasets.encoded import UnreadableError
from trainer.errors import one_line

IN_NO_TAR = -1


class Item(NamedTuple):
    """One image."""

    name: str  # such as cat/0001.jpg
    label: int
    size: int  # in bytes
    changed: int = 0  # modification time of the file, or of its tar, in ns
    offset: int = IN_NO_TAR  # in the tar


@dataclass(frozen=True)
class Origin:
    """The folder or uncompressed tar that the images of a split are read from."""

    path: Path

    def read(self, item: Item) -> bytes:
        """The image's bytes.  Raises UnreadableError."""
        try:
            if item.offset == IN_NO_TAR:
                return (self.path / item.name).read_bytes()
            with self.path.open("rb", buffering=0) as tar:
                data = os.pread(tar.fileno(), item.size, item.offset)
        except OSError as error:
            raise UnreadableError(one_line(error.strerror or error)) from error
        if len(data) < item.size:
            raise UnreadableError("cut off")
        return data


@dataclass
class Listing:
    """The images of one split, in the order in which the trainer lists such a folder."""

    origin: Origin
    _names: bytearray = field(default_factory=bytearray)
    _ends: array[int] = field(default_factory=lambda: array("Q"))
    _numbers: array[int] = field(default_factory=lambda: array("q"))  # of each image: label, size, changed, offset

    def add(self, item: Item) -> None:
        """Append an image."""
        self._names += os.fsencode(item.name)
        self._ends.append(len(self._names))
        self._numbers.extend(item[1:])

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> Item:
        label, size, changed, offset = self._numbers[4 * number : 4 * number + 4]
        return Item(os.fsdecode(self._name(number)), label, size, changed, offset)

    def __iter__(self) -> Iterator[Item]:
        return (self[number] for number in range(len(self)))

    def total_bytes(self) -> int:
        """The size of all images together."""
        return sum(self._numbers[1::4])

    def shuffled(self) -> NDArray[np.int64]:
        """The numbers of the images in a random but reproducible order: that of the digests of their names."""
        keys = array("Q")
        for number in range(len(self)):
            keys.frombytes(hashlib.blake2b(self._name(number), digest_size=8).digest())
        return np.argsort(np.frombuffer(keys, np.uint64), kind="stable")

    def digest(self) -> str:
        """SHA-256 over names, labels and sizes."""
        found = hashlib.sha256(self._names)
        found.update(self._ends.tobytes())
        found.update(self._numbers[0::4].tobytes())
        found.update(self._numbers[1::4].tobytes())
        return found.hexdigest()

    def _name(self, number: int) -> bytes:
        start = self._ends[number - 1] if number else 0
        return bytes(self._names[start : self._ends[number]])


@dataclass(frozen=True)
class Source:
    """The images found in a source."""

    kind: str  # folder, tar, ilsvrc or cifar
    name: str
    classes: Sequence[str]
    train: Listing
    val: Listing
    eval_split: str  # the source's own name for the evaluation split, such as val or test

    def halves(self) -> tuple[tuple[str, Listing], ...]:
        """Both splits with their names."""
        return (("train", self.train), ("val", self.val))

    def digest(self) -> str:
        """SHA-256 over both splits and the classes."""
        parts = [*self.classes, self.train.digest(), self.val.digest()]
        return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()
