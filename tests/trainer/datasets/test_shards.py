"""Training from shards: the images, labels and order of the folder that they were made of, whatever happens between."""

import errno
import hashlib
import io
import json
import random
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.trainer import parts
from tests.trainer.datasets.test_streaming import together
from trainer.batches import Batches
from trainer.datasets import imagefolder
from trainer.datasets.base import UNREADABLE, Batch, Data
from trainer.datasets.imagefolder import find_halves
from trainer.datasets.manifest import Half, Index, Shard
from trainer.datasets.remote import bounded_permutation
from trainer.datasets.resident import ResidentSplit
from trainer.datasets.shards import Folder, numbers_by_shard, read_index
from trainer.distributed.ranks import Ranks
from trainer.distributed.sampler import Order, positions, shard
from trainer.distributed.session import Session
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


def test_sizes_are_sampled_from_the_first_shards_of_a_large_set(
    photos, prepared, ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others would have to be fetched before the first step."""
    prepared(photos(train=40), shard_bytes=40_000)
    train = find_halves(ask(tmp_path / "prepared")).train
    monkeypatch.setattr(Folder, "read", lambda self, shard, offset, length: read.append(shard) or bytes(length))

    read: list[int] = []
    for number in train.sample(8).tolist():
        train.read(number)

    assert (len(read), read) == (8, [0] * 8)
    assert sorted({train.label(number) for number in train.sample(8).tolist()}) == [0, 1]
    assert sorted(train.sample(80).tolist()) == list(range(80))


def test_shards_know_what_their_half_was_called(photos, prepared, ask, tmp_path: Path) -> None:
    source = photos()
    (source / "val").rename(source / "valid")
    prepared(source)

    folder, shards = (imagefolder.load(ask(root)).eval_split for root in (source, tmp_path / "prepared"))

    assert (folder, shards) == ("valid", "valid")


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


@pytest.mark.slow("a training on shards ends with the weights of one on the folder")
def test_a_training_on_shards_ends_with_the_weights_of_one_on_the_folder(photos, prepared, tmp_path: Path) -> None:
    source = photos()
    prepared(source)
    session = Session(Ranks(), torch.device("cpu"), 60.0)

    states = []
    for place in (source, tmp_path / "prepared"):
        settings = parts.config(
            dataset="imagenet", data_dir=place, cache_dir=tmp_path / "cache", global_batch_size=4, epochs=2, seed=3
        )
        torch.manual_seed(0)
        folder = tmp_path / f"checkpoints of {place.name}"
        folder.mkdir()
        parts.trained(session, settings, folder)
        states.append(parts.state(folder))

    assert parts.differing(*(state["model"] for state in states)) == []


def test_small_images_are_resident_from_shards_as_from_a_folder(photos, prepared, ask, tmp_path: Path) -> None:
    source = photos(width=20, height=20)
    prepared(source)

    folder, shards = (imagefolder.load(ask(root)) for root in (source, tmp_path / "prepared"))

    assert isinstance(shards.train, ResidentSplit)
    assert same(trained(folder), trained(shards))


def test_ranks_share_each_batch_of_the_shards(photos, prepared, ask, tmp_path: Path) -> None:
    prepared(photos())
    data = imagefolder.load_large(ask(tmp_path / "prepared", image_size=32))

    ranks = [trained(data, Batches(2, 1, 2), rank) for rank in (0, 1)]

    steps = [Batch(r.images[s : s + 2], r.labels[s : s + 2]) for s in (0, 2, 4) for r in ranks]
    assert same(together(steps), trained(data))


def test_resuming_reads_nothing_of_what_was_seen(photos, prepared, ask, tmp_path: Path, monkeypatch) -> None:
    prepared(photos())
    data = imagefolder.load_large(ask(tmp_path / "prepared", image_size=32))
    read: list[int] = []
    source = data.train._source
    take = source.read
    monkeypatch.setattr(source, "read", lambda number: read.append(number) or take(number))

    trained(data, done=8, updates=1)

    assert sorted(read) == sorted(Order(12, seed=0, epoch=1).permutation[8:].tolist())


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_evaluation_counts_each_image_once(world_size: int, photos, prepared, ask, tmp_path: Path) -> None:
    prepared(photos(val=5))
    split = imagefolder.load_large(ask(tmp_path / "prepared", image_size=8)).evaluation

    ranks = [[b.labels for b in split.eval_batches(shard(10, rank, world_size), 2)] for rank in range(world_size)]

    labels = torch.cat([label for rank in ranks for label in rank]).tolist()
    assert sorted(labels) == [0] * 5 + [1] * 5


def permutation_of(case: int, size: int, is_bounded: bool) -> tuple[Order, torch.Tensor]:
    """The order of an epoch: over the whole set, or with a window over shards of unequal sizes."""
    rng = np.random.default_rng(case)
    order = Order(size, seed=case, epoch=int(rng.integers(4)))
    if not is_bounded:
        return order, order.permutation
    shards = int(rng.integers(1, 9))
    shard_of = rng.integers(0, shards, size).astype(np.uint32)
    return order, bounded_permutation(order, numbers_by_shard(shard_of, shards), int(rng.integers(1, 5)))


@pytest.mark.parametrize("is_bounded", [False, True], ids=["whole", "bounded"])
@pytest.mark.parametrize("case", range(25))
def test_over_any_schedule_of_stops_and_world_sizes_each_image_is_seen_once(case: int, is_bounded: bool) -> None:
    rng = random.Random(case)
    batch = 24  # 1, 2, 3 and 8 ranks share it
    seen: list[int] = []
    done, size = 0, batch * rng.randint(1, 40)
    while done < size:
        _, permutation = permutation_of(case, size, is_bounded)  # anew, as a started process has it
        updates = (size - done) // batch
        ranks, stop_after = rng.choice([1, 2, 3, 8]), rng.randint(1, updates)
        for rank in range(ranks):
            for place in positions(Batches(batch // ranks, 1, ranks), rank, 1, done, updates)[:stop_after]:
                seen += permutation[place].tolist()
        done += stop_after * batch

    assert sorted(seen) == list(range(size))


# ---- what is wrong with a folder


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


def forged(field: str, value: int) -> Callable[[Path], None]:
    """Has the index name something else for an image, and the manifest that index."""

    def forge(root: Path) -> None:
        path, manifest = root / "train/index.npy", root / "manifest.json"
        before = hashlib.sha256(path.read_bytes()).hexdigest()
        index = np.load(path)
        index[field][1] = value
        np.save(path, index)
        manifest.write_text(manifest.read_text().replace(before, hashlib.sha256(path.read_bytes()).hexdigest()))

    return forge


def damage(root: Path) -> None:
    (root / "manifest.json").write_text((root / "manifest.json").read_text()[:100])


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
        (cut, r"train/000001\.tar has 5 bytes and manifest\.json says [\d,]+; copy it again, or run python -m trainer"),
        (lose, r"cannot read .*val/000000\.tar \(No such file or directory\); copy or prepare the data again\."),
        (swap, r"train/index\.npy is not the one that was prepared; copy or prepare the data again\."),
        *(
            (forged(field, value), r"train/index\.npy lists images that no shard has; prepare the data again\.")
            for field, value in (("shard", 9), ("offset", 2**64 - 1), ("length", 2**32 - 1), ("label", 1000))
        ),
        (damage, r"manifest\.json is damaged \(.*\); prepare or copy the data again\."),
        (escape, r"manifest\.json is damaged \(splits\.train\.shards\.0\.file: .*\); prepare or copy"),
        (age, r"manifest\.json has version 2, and this toolkit reads 1; update the toolkit\."),
        (unfinish, r"prepared is not prepared to the end; run python -m trainer\.prepare again to resume\."),
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


def test_more_shards_than_open_files_are_allowed_can_be_read(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    (tmp_path / "train").mkdir()
    shards = [Shard(file=f"train/{n:06d}.tar", images=1, bytes=1, sha256="0" * 64) for n in range(400)]
    for one in shards:
        (tmp_path / one.file).write_bytes(b"x")
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    try:
        folder = Folder(tmp_path, shards)
        read = [folder.read(number, 0, 1) for number in range(400)]
        del folder
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert read == [b"x"] * 400


def test_the_index_is_mapped_and_small(photos, prepared, ask, tmp_path: Path) -> None:
    prepared(photos())

    index = imagefolder.load_large(ask(tmp_path / "prepared")).train._source._index

    assert isinstance(index, np.memmap)
    assert index.itemsize == 20


def half_of(content: bytes, size: int = 512) -> Half:
    """Of one image, in a shard of `size` bytes."""
    index = Index(file="train/index.npy", sha256=hashlib.sha256(content).hexdigest())
    return Half(
        images=1, bytes=size, index=index, shards=(Shard(file="train/0.tar", images=1, bytes=size, sha256="0" * 64),)
    )


def index_that_claims(text: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def an_archive_of_arrays() -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.zeros(1))
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [b"", an_archive_of_arrays(), index_that_claims(b"-" * 9000 + b"1"), index_that_claims(b"(" * 9000)],
    ids=["empty", "several arrays", "nested", "never closed"],
)
def test_an_index_of_anything_else_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "index.npy").write_bytes(content)

    with pytest.raises(DataError, match=r"cannot read .*index\.npy \(.+\)|is not the one that was prepared"):
        read_index(tmp_path / "index.npy", half_of(content), 1)
