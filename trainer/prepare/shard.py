"""The shards of one half: each is made by one process under another name, and renamed when it is whole.

A shard that is whole is remembered with its digest.  Each image keeps its own bytes, or becomes a smaller JPEG.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from trainer.datasets.encoded import FORMATS, Pixels, UnreadableError, format_of, whole
from trainer.datasets.manifest import ENTRY, UNFINISHED, Half, Index, Shard
from trainer.errors import DataError
from trainer.files import read_json, write_atomically
from trainer.prepare.listing import Item, Listing, Origin

PART = ".part"
MOST_IN_SHARD = 10_000
BYTES_PER_PIXEL = 0.46  # of a JPEG of quality 92 (measured on ImageNet's: 30 kB at 256 px)
RECORD = 20 * 512  # a tar's length is a multiple of it
EXTENSIONS = {kind: kind.lower() for kind in FORMATS} | {"JPEG": "jpg", "JPEG2000": "jp2"}
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


def make(task: Task, count: Callable[[int], object]) -> Made:
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


def _make(task: Task, count: Callable[[int], object]) -> Made:
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


def check(shard: Check, count: Callable[[int], object]) -> str:
    """How the shard on the disk differs from what was made; "" if it does not.  Raises OSError.  count: as make's."""
    count(1)
    if digest_of(shard.path) != shard.sha256:
        return "its bytes are not those that were written"
    with tarfile.open(shard.path) as tar:
        found = [(info.offset_data, info.size) for info in tar if not info.name.endswith(".cls")]
    return "" if found == sorted(shard.places) else "its index does not fit it"


@dataclass(frozen=True)
class Recipe:
    """resize: most pixels of the shorter side, None: all stay as they are; quality: of JPEGs that are made anew."""

    resize: int | None
    quality: int


def prepared(data: bytes, recipe: Recipe) -> tuple[bytes, str]:
    """The bytes for the shard, and their extension.  Raises UnreadableError.

    Every image is decoded, so that a damaged one is found now; one that is small enough keeps its bytes.
    """
    pixels = whole(data)
    height, width = pixels.shape[:2]
    if recipe.resize is None or min(height, width) <= recipe.resize:
        return data, EXTENSIONS[format_of(data)]
    small = smaller(pixels, recipe.resize)
    # 4:2:0, as cameras write them: a fifth smaller than 4:4:4 and quicker to decode.
    return simplejpeg.encode_jpeg(small, quality=recipe.quality, colorsubsampling="420"), EXTENSIONS["JPEG"]


def smaller(pixels: Pixels, side: int) -> Pixels:
    """`pixels` with `side` for the shorter side, rounded and filtered as torchvision's Resize does it."""
    height, width = pixels.shape[:2]
    size = (side, int(side * height / width)) if width < height else (int(side * width / height), side)
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BILINEAR))


class HalfWork:
    """The shards of one half.  Training images are shuffled once, so that a shard is a sample of all of them.

    The index keeps the order of the listing, which is that of the folder.
    """

    def __init__(self, name: str, listing: Listing, target: Path, recipe: Recipe, shard_bytes: int) -> None:
        self.name, self.images, self.bad = name, len(listing), dict[str, str]()
        self._listing, self._target, self._recipe = listing, target, recipe
        self._order = listing.shuffled() if name == "train" else np.arange(len(listing))
        self._shards: list[Shard | None] = [None] * shards_for(listing, recipe, shard_bytes)
        self._index: NDArray[Any] = np.zeros(len(listing), ENTRY)

    def __len__(self) -> int:
        """How many shards there are."""
        return len(self._shards)

    def tasks(self) -> Iterator[Task]:
        """One for each shard, made when it is asked for: a million names at once would be too many."""
        for shard, numbers in enumerate(np.array_split(self._order, len(self))):
            items = [self._listing[number] for number in numbers]
            yield Task(self._target, self.name, shard, self._listing.origin, numbers.tolist(), items, self._recipe)

    def take(self, task: Task, made: Made) -> None:
        """Record what a shard became."""
        self._shards[task.shard] = Shard(file=task.file, images=len(made.places), bytes=made.bytes, sha256=made.sha256)
        self.bad |= dict(made.bad)
        for number, offset, length in made.places:
            self._index[number] = (task.shard, offset, length, self._listing[number].label)

    def checks(self) -> Iterator[Check]:
        """One for each shard, once all are made."""
        for shard, numbers in zip(self._made(), np.array_split(self._order, len(self)), strict=True):
            rows = self._index[numbers]
            places = [(int(row["offset"]), int(row["length"])) for row in rows if row["offset"]]
            yield Check(self._target / shard.file, shard.sha256, places)

    def finish(self) -> Half:
        """Writes the index and returns the half's part of the manifest.  Raises DataError if no image is left."""
        kept = self._index[self._index["offset"] > 0]
        if not len(kept):
            raise DataError(f"not one of the {len(self._listing):,} images of {self.name} could be read.")
        data = _index_bytes(kept)
        file = f"{self.name}/index.npy"
        write_atomically(self._target / file, data)
        shards = tuple(self._made())
        return Half(
            images=len(kept),
            bytes=sum(shard.bytes for shard in shards),
            index=Index(file=file, sha256=hashlib.sha256(data).hexdigest()),
            shards=shards,
        )

    def _made(self) -> Iterator[Shard]:
        for shard in self._shards:
            assert shard is not None
            yield shard


def _index_bytes(entries: NDArray[Any]) -> bytes:
    """The content of index.npy.  entries: (N,) of ENTRY."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(entries), version=(1, 0), allow_pickle=False)
    return file.getvalue()


def shards_for(listing: Listing, recipe: Recipe, shard_bytes: int) -> int:
    """How many shards of about `shard_bytes` the images need, by what is known before any is read."""
    each = max(1.0, listing.total_bytes() / len(listing))
    if recipe.resize is not None:
        each = min(each, recipe.resize**2 * BYTES_PER_PIXEL)
    in_shard = min(MOST_IN_SHARD, max(1, int(shard_bytes / each)))
    return math.ceil(len(listing) / in_shard)
