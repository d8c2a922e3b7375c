"""Training from shards: the images, labels and order of the folder that they were made of, whatever happens between."""

import errno
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.trainer.datasets.test_streaming import together
from trainer.config import Batches
from trainer.datasets import imagefolder
from trainer.datasets.base import UNREADABLE, Batch, Data
from trainer.datasets.order import Order, positions
from trainer.datasets.remote import bounded_permutation
from trainer.datasets.source import numbers_by_shard
from trainer.errors import DataError

OF_FOUR = Batches(4, 1, 1)


def trained(data: Data, batches: Batches = OF_FOUR, rank: int = 0, done: int = 0, updates: int = 3) -> Batch:
    order = Order(data.train.size, seed=0, epoch=1)
    return together(list(data.train.train_batches(order, positions(batches, rank, 1, done, updates))))


def same(one: Batch, other: Batch) -> bool:
    return torch.equal(one.images, other.images) and torch.equal(one.labels, other.labels)


@pytest.mark.parametrize("load", [imagefolder.load_large, imagefolder.load], ids=["imagenet", "imagefolder"])
def test_training_and_evaluation_see_the_bits_that_the_folder_gives(
    load, photos, prepared, ask, tmp_path: Path
) -> None:
    source = photos()
    prepared(source)

    folder, shards = (load(ask(root, image_size=96)) for root in (source, tmp_path / "prepared"))

    evaluated = [together(list(data.evaluation.eval_batches(range(6), 4))) for data in (folder, shards)]
    assert same(trained(folder), trained(shards))
    assert same(*evaluated)
    assert folder.signature == shards.signature


def test_a_published_folder_is_trained_from_where_it_can_only_be_read(
    photos, prepared, ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As SageMaker mounts a channel, by File or FastFile, and a cluster a shared folder: with launch.data's record in
    it.  A file system in user space need not map files.
    """
    prepared(photos())
    folder = tmp_path / "prepared"
    (folder / "published.json").write_text("{}")
    before, load = sorted(folder.rglob("*")), np.load

    def maps_nothing(path: Path, mmap_mode: str | None = None, **more: object) -> object:
        if mmap_mode:
            raise OSError(errno.ENODEV, "No such device")
        return load(path, **more)

    expected = trained(imagefolder.load_large(ask(folder, image_size=48)))
    monkeypatch.setattr(np, "load", maps_nothing)
    assert same(trained(imagefolder.load_large(ask(folder, image_size=48))), expected)
    assert sorted(folder.rglob("*")) == before


# ---- what is wrong with a folder


@pytest.mark.parametrize("case", range(8))
def test_over_any_schedule_of_stops_and_world_sizes_each_image_is_seen_once(case: int) -> None:
    """In an order with a window over shards of unequal sizes."""
    rng, numbers = random.Random(case), np.random.default_rng(case)
    batch = 24  # 1, 2, 3 and 8 ranks share it
    size = batch * rng.randint(1, 40)
    shards = numbers_by_shard(numbers.integers(0, 8, size).astype(np.uint32), 8)
    order, window = Order(size, seed=case, epoch=case % 4), rng.randint(1, 4)
    seen: list[int] = []
    done = 0
    while done < size:
        permutation = bounded_permutation(order, shards, window)  # anew, as a started process has it
        updates = (size - done) // batch
        ranks, stop_after = rng.choice([1, 2, 3, 8]), rng.randint(1, updates)
        for rank in range(ranks):
            for place in positions(Batches(batch // ranks, 1, ranks), rank, 1, done, updates)[:stop_after]:
                seen += permutation[place].tolist()
        done += stop_after * batch

    assert sorted(seen) == list(range(size))


def test_an_unreadable_image_is_named_by_its_shard_and_weighs_nothing(photos, prepared, ask, tmp_path: Path) -> None:
    manifest = prepared(photos())
    [file, *_] = [tmp_path / "prepared" / shard.file for shard in manifest.splits.val.shards]
    data = bytearray(file.read_bytes())
    data[512:1024] = bytes(512)  # the first image's first bytes
    file.write_bytes(data)
    split = imagefolder.load_large(ask(tmp_path / "prepared", image_size=8, max_bad_images=1)).evaluation

    [batch] = split.eval_batches(range(6), 6)

    assert batch.labels.tolist() == [UNREADABLE, 0, 0, 1, 1, 1]
    assert split.bad_images == ("val/000000.tar: 00000000-0000.jpg",)


def cut(root: Path) -> None:
    (root / "train/000001.tar").write_bytes(b"short")


def lose(root: Path) -> None:
    (root / "val/000000.tar").unlink()


def swap(root: Path) -> None:
    (root / "train/index.npy").write_bytes((root / "val/index.npy").read_bytes())


def escape(root: Path) -> None:
    (root / "manifest.json").write_text((root / "manifest.json").read_text().replace("train/000000", "../train/0"))


def age(root: Path) -> None:
    content = json.loads((root / "manifest.json").read_text())
    (root / "manifest.json").write_text(json.dumps(content | {"version": 2}))


def unfinish(root: Path) -> None:
    (root / "manifest.json").unlink()
    (root / ".prepare").mkdir()


@pytest.mark.parametrize(
    ("alter", "sentence"),
    [
        (cut, r"train/000001\.tar has 5 bytes"),
        (lose, r"val/000000\.tar \(No such file or directory\)"),
        (swap, r"train/index\.npy does not match its digest"),
        (lambda root: (root / "manifest.json").write_text("{"), r"manifest\.json is damaged"),
        (age, r"manifest\.json has version 2"),
        (escape, r"manifest\.json is damaged \(splits\.train\.shards\.0\.file: "),
        (unfinish, r"is not fully prepared; run python -m trainer\.prepare again"),
    ],
)
def test_a_folder_that_is_not_as_it_was_prepared_is_refused(
    alter, sentence: str, photos, prepared, ask, tmp_path: Path
) -> None:
    prepared(photos())
    alter(tmp_path / "prepared")

    with pytest.raises(DataError, match=sentence):
        imagefolder.load_large(ask(tmp_path / "prepared"))


def test_somebody_elses_manifest_in_a_folder_of_images_is_passed_over(photos, ask) -> None:
    source = photos()
    (source / "manifest.json").write_text('{"name": "an app", "version": 3}')

    assert imagefolder.load_large(ask(source)).train.size == 12
