"""One half on its way into shards: which image goes where, and what has become of it."""

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from trainer.datasets.entries import ENTRY, Entries, index_bytes
from trainer.datasets.manifest import Half, Index, Shard
from trainer.errors import DataError
from trainer.files import write_atomically
from trainer.prepare.listing import Listing
from trainer.prepare.picture import Recipe
from trainer.prepare.shard import Check, Made, Task

MOST_IN_SHARD = 10_000
BYTES_PER_PIXEL = 0.46  # of a JPEG of quality 92 (measured on ImageNet's: 30 kB at 256 px)


class HalfWork:
    """The shards of one half.  Training images are shuffled once, so that a shard is a sample of all of them.

    The index keeps the order of the listing, which is that of the folder.
    """

    def __init__(self, name: str, listing: Listing, target: Path, recipe: Recipe, shard_bytes: int) -> None:
        self.name, self.images, self.bad = name, len(listing), dict[str, str]()
        self._listing, self._target, self._recipe = listing, target, recipe
        self._order = listing.shuffled() if name == "train" else np.arange(len(listing))
        self._shards: list[Shard | None] = [None] * shards_for(listing, recipe, shard_bytes)
        self._index: Entries = np.zeros(len(listing), ENTRY)

    def __len__(self) -> int:
        """How many shards there are."""
        return len(self._shards)

    def tasks(self) -> Iterator[Task]:
        """One for each shard, made when it is asked for: a million names at once would be too many."""
        for shard, numbers in enumerate(np.array_split(self._order, len(self))):
            items = [self._listing[number] for number in numbers]
            yield Task(self._target, self.name, shard, self._listing.origin, numbers.tolist(), items, self._recipe)

    def take(self, task: Task, made: Made) -> None:
        """Notes what has become of a shard."""
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
        data = index_bytes(kept)
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


def shards_for(listing: Listing, recipe: Recipe, shard_bytes: int) -> int:
    """How many shards of about `shard_bytes` the images need, by what is known before any is read."""
    each = max(1.0, listing.total_bytes() / len(listing))
    if recipe.resize is not None:
        each = min(each, recipe.resize**2 * BYTES_PER_PIXEL)
    in_shard = min(MOST_IN_SHARD, max(1, int(shard_bytes / each)))
    return math.ceil(len(listing) / in_shard)
