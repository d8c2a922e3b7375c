"""Writing and verifying the shards of one split.

A shard is written under a temporary name, and renamed when it is complete.  Complete shards are recorded with
their digest, to be reused after an interruption.  Images are copied unchanged, or resized to JPEGs.
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

from trainer.datasets.encoded import FORMATS, Pixels, UnreadableError, decode_image, format_of
from trainer.datasets.manifest import ENTRY, UNFINISHED, Half, Index, Shard
from trainer.errors import DataError
from trainer.files import read_json, write_atomically
from trainer.prepare.listing import Item, Listing, Origin

PART = ".part"
MOST_IN_SHARD = 10_000
BYTES_PER_PIXEL = 0.46  # of a JPEG of quality 92 (measured on ImageNet: 30 kB at 256 px)
RECORD = 20 * 512  # a tar's length is a multiple of it
EXTENSIONS = {kind: kind.lower() for kind in FORMATS} | {"JPEG": "jpg", "JPEG2000": "jp2"}
_UNUSUAL = re.compile(r"[^A-Za-z0-9_-]+")  # a dot ends the key of a WebDataset sample


@dataclass(frozen=True)
class Task:
    """A shard to write."""

    target: Path
    half: str
    shard: int
    origin: Origin
    numbers: list[int]  # of the images in the listing
    items: list[Item]  # the images
    recipe: Recipe

    @property
    def file(self) -> str:
        """The path of the shard relative to the target."""
        return f"{self.half}/{self.shard:06d}.tar"

    def digest(self) -> str:
        """SHA-256 over the images that go into the shard and how they are converted."""
        return hashlib.sha256(repr((self.recipe, self.numbers, self.items)).encode()).hexdigest()


@dataclass(frozen=True)
class BuiltShard:
    """A complete shard."""

    made_of: str  # the digest of its task
    bytes: int
    sha256: str
    places: list[tuple[int, int, int]]  # (number in the listing, offset, length) of each image
    bad: list[tuple[str, str]]  # (name, reason) of each image that was skipped


def make(task: Task, count: Callable[[int], object]) -> BuiltShard:
    """Write the shard of `task`, or reuse the same shard of an interrupted run.  Raises OSError.

    count: called with the number of images just done.
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


def _earlier(task: Task) -> BuiltShard | None:
    """The shard that an interrupted run wrote from the same images, if it is complete and unchanged."""
    try:
        found: Any = read_json(_record(task))
        made = BuiltShard(
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


def _make(task: Task, count: Callable[[int], object]) -> BuiltShard:
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
    return BuiltShard(task.digest(), tar.length, tar.sha256.hexdigest(), places, bad)


def key_of(number: int, name: str) -> str:
    """The key of a sample: its number, which makes it unique, and the name of its file, for people."""
    stem = Path(name).name.rpartition(".")[0]
    return f"{number:08d}-{_UNUSUAL.sub('-', stem)[:60]}"


class _Tar:
    """Writer of reproducible tars: without times and owners."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.length, self.sha256 = 0, hashlib.sha256()

    def add(self, name: str, data: bytes) -> int:
        """Append a member and return the offset of its first byte."""
        info = tarfile.TarInfo(name)
        info.size = len(data)
        self._write(info.tobuf(tarfile.USTAR_FORMAT))
        offset = self.length
        self._write(data + bytes(-len(data) % 512))
        return offset

    def close(self) -> None:
        """Write the end: two empty blocks, and padding to a full record."""
        self._write(bytes(1024 + -(self.length + 1024) % RECORD))

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self.sha256.update(data)
        self.length += len(data)


def digest_of(path: Path) -> str:
    """SHA-256 of a file as it is on the disk, bypassing the page cache."""
    with path.open("rb") as file:
        if hasattr(os, "posix_fadvise"):  # not on macOS
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if hasattr(os, "posix_fadvise"):  # keep tens of gigabytes of shards out of the page cache
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return digest


@dataclass(frozen=True)
class Check:
    """A shard to verify."""

    path: Path
    sha256: str
    places: list[tuple[int, int]]  # (offset, length) of each image, in any order


def check(shard: Check, count: Callable[[int], object]) -> str:
    """How a shard on the disk differs from what was written, or "".  Raises OSError.  count: called once with 1."""
    count(1)
    if digest_of(shard.path) != shard.sha256:
        return "its content differs from what was written"
    with tarfile.open(shard.path) as tar:
        found = [(info.offset_data, info.size) for info in tar if not info.name.endswith(".cls")]
    return "" if found == sorted(shard.places) else "its index does not match its content"


@dataclass(frozen=True)
class Recipe:
    """How images are converted."""

    resize: int | None  # limit of the shorter side in pixels; None: keep every image unchanged
    quality: int  # of the JPEGs of resized images


def prepared(data: bytes, recipe: Recipe) -> tuple[bytes, str]:
    """The bytes of an image for the shard, and its file extension.  Raises UnreadableError.

    Every image is decoded, to find damaged ones now; those that are small enough are copied unchanged.
    """
    pixels = decode_image(data)
    height, width = pixels.shape[:2]
    if recipe.resize is None or min(height, width) <= recipe.resize:
        return data, EXTENSIONS[format_of(data)]
    small = smaller(pixels, recipe.resize)
    # 4:2:0, as cameras write: a fifth smaller than 4:4:4 and faster to decode.
    return simplejpeg.encode_jpeg(small, quality=recipe.quality, colorsubsampling="420"), EXTENSIONS["JPEG"]


def smaller(pixels: Pixels, side: int) -> Pixels:
    """`pixels` resized to a shorter side of `side`, with the rounding and filter of torchvision's Resize."""
    height, width = pixels.shape[:2]
    size = (side, int(side * height / width)) if width < height else (int(side * width / height), side)
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BILINEAR))


class HalfWork:
    """The work on one split.  Training images are shuffled, so that each shard is a random sample.

    The index keeps the order of the listing, which is that of the folder.
    """

    def __init__(self, name: str, listing: Listing, target: Path, recipe: Recipe, shard_bytes: int) -> None:
        self.name, self.images, self.bad = name, len(listing), dict[str, str]()
        self._listing, self._target, self._recipe = listing, target, recipe
        self._order = listing.shuffled() if name == "train" else np.arange(len(listing))
        self._shards: list[Shard | None] = [None] * shards_for(listing, recipe, shard_bytes)
        self._index: NDArray[Any] = np.zeros(len(listing), ENTRY)

    def __len__(self) -> int:
        """The number of shards."""
        return len(self._shards)

    def tasks(self) -> Iterator[Task]:
        """A task for each shard, created lazily to save memory."""
        for shard, numbers in enumerate(np.array_split(self._order, len(self))):
            items = [self._listing[number] for number in numbers]
            yield Task(self._target, self.name, shard, self._listing.origin, numbers.tolist(), items, self._recipe)

    def take(self, task: Task, made: BuiltShard) -> None:
        """Record a finished shard."""
        self._shards[task.shard] = Shard(file=task.file, images=len(made.places), bytes=made.bytes, sha256=made.sha256)
        self.bad |= dict(made.bad)
        for number, offset, length in made.places:
            self._index[number] = (task.shard, offset, length, self._listing[number].label)

    def checks(self) -> Iterator[Check]:
        """A check for each shard, once all are written."""
        for shard, numbers in zip(self._made(), np.array_split(self._order, len(self)), strict=True):
            rows = self._index[numbers]
            places = [(int(row["offset"]), int(row["length"])) for row in rows if row["offset"]]
            yield Check(self._target / shard.file, shard.sha256, places)

    def finish(self) -> Half:
        """Write the index and return the split's part of the manifest.  Raises DataError if no image is left."""
        kept = self._index[self._index["offset"] > 0]
        if not len(kept):
            raise DataError(f"none of the {len(self._listing):,} images of {self.name} could be read.")
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
    """The content of index.npy.  entries: (N,) of dtype ENTRY."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(entries), version=(1, 0), allow_pickle=False)
    return file.getvalue()


def shards_for(listing: Listing, recipe: Recipe, shard_bytes: int) -> int:
    """The number of shards of about `shard_bytes` that the images need, estimated before any is read."""
    each = max(1.0, listing.total_bytes() / len(listing))
    if recipe.resize is not None:
        each = min(each, recipe.resize**2 * BYTES_PER_PIXEL)
    in_shard = min(MOST_IN_SHARD, max(1, int(shard_bytes / each)))
    return math.ceil(len(listing) / in_shard)
