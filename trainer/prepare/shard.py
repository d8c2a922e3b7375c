"""One shard: made by one process under another name, renamed when it is whole, and remembered with its digest."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tarfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from trainer.datasets.manifest import UNFINISHED
from trainer.datasets.unreadable import UnreadableError
from trainer.files import read_json, write_atomically
from trainer.prepare.listing import Item, Origin
from trainer.prepare.picture import Recipe, prepared

PART = ".part"
RECORD = 20 * 512  # a tar's length is a multiple of it
_UNUSUAL = re.compile(r"[^A-Za-z0-9_-]+")  # a dot ends the key of a WebDataset sample


@dataclass(frozen=True)
class Task:
    """A shard to be made.  numbers: of the images in the listing; items: the images."""

    target: Path
    half: str
    shard: int
    origin: Origin
    numbers: list[int]
    items: list[Item]
    recipe: Recipe

    @property
    def file(self) -> str:
        """Relative to the target."""
        return f"{self.half}/{self.shard:06d}.tar"

    def digest(self) -> str:
        """Changes with any file that goes into the shard, and with what is done to it."""
        return hashlib.sha256(repr((self.recipe, self.numbers, self.items)).encode()).hexdigest()


@dataclass(frozen=True)
class Made:
    """A shard that is whole.

    made_of: its task's digest; places: (number in the listing, offset, length) of each image; bad: (name, reason) of
    each that is left out.
    """

    made_of: str
    bytes: int
    sha256: str
    places: list[tuple[int, int, int]]
    bad: list[tuple[str, str]]


def make(task: Task, count: Callable[[int], None]) -> Made:
    """The shard of `task`: what an earlier start has made of the same, else made now.  Raises OSError.

    count: is told of each image that is done.
    """
    made = _earlier(task)
    if made is None:
        made = _make(task, count)
        write_atomically(_record(task), json.dumps(asdict(made)))
    else:
        count(len(task.items))
    return made


def _record(task: Task) -> Path:
    return task.target / UNFINISHED / f"{task.half}-{task.shard:06d}.json"


def _earlier(task: Task) -> Made | None:
    """What an earlier start has made of the same images, if it is whole and as it was."""
    try:
        found: Any = read_json(_record(task))
        made = Made(
            found["made_of"],
            found["bytes"],
            found["sha256"],
            [(number, offset, length) for number, offset, length in found["places"]],
            [(name, why) for name, why in found["bad"]],
        )
        if made.made_of == task.digest() and digest_of(task.target / task.file) == made.sha256:
            return made
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _make(task: Task, count: Callable[[int], None]) -> Made:
    path = task.target / task.file
    part = path.with_suffix(PART)
    places, bad = [], []
    try:
        with part.open("wb") as file:
            tar = _Tar(file)
            for number, item in zip(task.numbers, task.items, strict=True):
                try:
                    data, extension = prepared(task.origin.read(item), task.recipe)
                except UnreadableError as error:
                    bad.append((f"{task.half}/{item.name}", str(error)))
                else:
                    key = key_of(number, item.name)
                    places.append((number, tar.add(f"{key}.{extension}", data), len(data)))
                    tar.add(f"{key}.cls", str(item.label).encode())
                count(1)
            tar.close()
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return Made(task.digest(), tar.length, tar.sha256.hexdigest(), places, bad)


def key_of(number: int, name: str) -> str:
    """The key of a sample: unique by its number, and to be found again by the name of its file."""
    stem = Path(name).name.rpartition(".")[0]
    return f"{number:08d}-{_UNUSUAL.sub('-', stem)[:60]}"


class _Tar:
    """A tar whose bytes depend on its members alone: no times, no owners."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.length, self.sha256 = 0, hashlib.sha256()

    def add(self, name: str, data: bytes) -> int:
        """Appends a member and returns the offset of its first byte."""
        info = tarfile.TarInfo(name)
        info.size = len(data)
        self._write(info.tobuf(tarfile.USTAR_FORMAT))
        offset = self.length
        self._write(data + bytes(-len(data) % 512))
        return offset

    def close(self) -> None:
        """Ends it, with two empty blocks and more."""
        self._write(bytes(1024 + -(self.length + 1024) % RECORD))

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self.sha256.update(data)
        self.length += len(data)


def digest_of(path: Path) -> str:
    """SHA-256 of a file as it lies on the disk: what the system has of it in memory is let go first."""
    with path.open("rb") as file:
        if hasattr(os, "posix_fadvise"):  # not on macOS
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if hasattr(os, "posix_fadvise"):  # tens of gigabytes that others need more
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return digest


@dataclass(frozen=True)
class Check:
    """A shard to be compared with what was made.  places: (offset, length) of each image, in any order."""

    path: Path
    sha256: str
    places: list[tuple[int, int]]


def check(shard: Check, count: Callable[[int], None]) -> str:
    """How the shard on the disk differs from what was made; "" if it does not.  Raises OSError.  count: as make's."""
    count(1)
    if digest_of(shard.path) != shard.sha256:
        return "its bytes are not those that were written"
    with tarfile.open(shard.path) as tar:
        found = [(info.offset_data, info.size) for info in tar if not info.name.endswith(".cls")]
    return "" if found == sorted(shard.places) else "its index does not fit it"
