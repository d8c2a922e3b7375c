import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from trainer.datasets import imagefolder
from trainer.datasets.resident import ResidentSplit
from trainer.datasets.source import spread
from trainer.datasets.streaming import StreamingSplit
from trainer.errors import DataError

MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


@pytest.fixture
def decodes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imagefolder, "decode_all", None)


def test_small_images_become_resident_with_their_own_size_and_exact_pixels(ask, make_tree) -> None:
    root = make_tree(side=16)

    data = imagefolder.load(ask(root))

    [batch] = data.train.eval_batches(range(12), 12)
    paths = [root / "train" / name / f"{n}.jpg" for name in ("cat", "dog") for n in range(6)]
    raw = torch.from_numpy(np.stack([np.asarray(Image.open(path)) for path in paths]))
    assert isinstance(data.train, ResidentSplit)
    assert (data.train.size, data.evaluation.size, data.classes, data.image_size) == (12, 6, 2, 16)
    assert batch.labels.tolist() == [0] * 6 + [1] * 6
    assert torch.allclose(batch.images, ((raw / 255 - MEAN) / STD).permute(0, 3, 1, 2), atol=1e-5)


@pytest.mark.parametrize(
    ("side", "image_size", "kind", "size"),
    [
        (64, None, ResidentSplit, 64),
        (65, None, StreamingSplit, 224),
        (80, 32, ResidentSplit, 32),
        (80, 96, StreamingSplit, 96),
        (32, 96, ResidentSplit, 96),
    ],
)
def test_small_sets_are_resident_and_big_ones_streamed(
    ask, make_tree, side: int, image_size: int | None, kind: type, size: int
) -> None:
    data = imagefolder.load(ask(make_tree(side, train=1, val=1), image_size=image_size))

    assert isinstance(data.train, kind)
    assert data.image_size == size


def test_small_images_too_many_for_the_memory_are_streamed(ask, make_tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.datasets.resident.LARGEST_BYTES", 18 * 16 * 16 * 3 - 1)

    assert isinstance(imagefolder.load(ask(make_tree(16))).train, StreamingSplit)


def _add(root: Path) -> None:
    shutil.copy(root / "train/cat/0.jpg", root / "train/cat/new.jpg")


def _remove(root: Path) -> None:
    (root / "train/dog/5.jpg").unlink()


def _change(root: Path) -> None:
    (root / "train/cat/0.jpg").write_bytes((root / "train/dog/0.jpg").read_bytes())


@pytest.mark.parametrize(("alter", "size"), [(_add, 13), (_remove, 11), (_change, 12)])
def test_added_removed_and_changed_files_are_noticed(ask, make_tree, alter, size: int) -> None:
    root = make_tree()
    [before] = imagefolder.load(ask(root)).train.eval_batches(range(12), 12)

    alter(root)

    train = imagefolder.load(ask(root)).train
    [after] = train.eval_batches(range(train.size), 13)
    assert train.size == size
    assert after.images.shape != before.images.shape or not torch.equal(after.images, before.images)


def test_corrupt_images_are_named_with_the_way_to_skip_them(ask, make_tree) -> None:
    root = make_tree()
    (root / "train/cat/3.jpg").write_bytes(b"")
    (root / "train/dog/1.jpg").write_bytes((root / "train/dog/1.jpg").read_bytes()[:300])

    with pytest.raises(DataError) as caught:
        imagefolder.load(ask(root, max_bad_images=1))

    assert "train/cat/3.jpg (empty), train/dog/1.jpg (Truncated File Read); " in str(caught.value)
    assert "--max-bad-images 2" in str(caught.value)


def test_allowed_corrupt_images_are_left_out_and_remembered(ask, make_tree, request: pytest.FixtureRequest) -> None:
    root = make_tree()
    (root / "train/cat/3.jpg").write_bytes(b"")
    imagefolder.load(ask(root, max_bad_images=1))
    request.getfixturevalue("decodes_nothing")

    data = imagefolder.load(ask(root, max_bad_images=1))

    [batch] = data.train.eval_batches(range(11), 11)
    assert data.train.size == 11
    assert data.train.bad_images == ("train/cat/3.jpg",)
    assert batch.labels.tolist() == [0] * 5 + [1] * 6
    with pytest.raises(DataError, match=r"1 image could not be read \(0 allowed\): train/cat/3\.jpg"):
        imagefolder.load(ask(root))


def test_the_size_follows_from_images_of_all_classes_not_from_the_first(ask, make_tree) -> None:
    root = make_tree(side=16, train=10)
    for number in range(10):
        Image.new("RGB", (200 + number, 100)).save(root / "train/dog" / f"{number}.jpg")

    data = imagefolder.load(ask(root))

    assert (data.image_size, type(data.train)) == (224, StreamingSplit)
    assert "16 to 209 px: 224 px was chosen" in data.sizes
    assert imagefolder.load(ask(root, image_size=32)).sizes == ""


def test_mixed_sizes_become_the_size_of_the_largest(ask, make_tree) -> None:
    root = make_tree(side=16)
    assert imagefolder.load(ask(root)).sizes == ""
    Image.new("RGB", (40, 20), (255, 0, 0)).save(root / "train/cat/0.jpg")
    Image.new("L", (30, 30), 255).save(root / "train/cat/0.png")

    data = imagefolder.load(ask(root))

    assert (data.image_size, "16 to 40 px: 40 px was chosen" in data.sizes) == (40, True)
    assert next(data.train.eval_batches(range(4), 4)).images.shape == (4, 3, 40, 40)


def test_a_sample_has_images_of_each_class_and_of_all_of_it() -> None:
    labels = np.repeat([0, 1, 2], [1, 1000, 99_000])

    few = spread(labels, 30)

    assert np.bincount(labels[few]).tolist() == [1, 10, 10]
    assert few[1:11].tolist() == [51, 151, 251, 351, 451, 551, 651, 751, 851, 951]
    assert spread(labels[:25], 30).tolist() == list(range(25))
    assert np.bincount(labels[spread(labels, 2)]).tolist() == [1, 1, 1]
    assert labels[::-1][spread(labels[::-1], 3)].tolist() == [2, 1, 0]


@pytest.mark.parametrize("image_size", [16, 96], ids=["resident", "streamed"])
def test_names_that_are_no_utf8_are_read_and_shown(image_size: int, ask, make_tree) -> None:
    root = make_tree(side=80)
    for old, new in (("0.jpg", b"caf\xe9.jpg"), ("1.jpg", b"bad\xff.jpg")):
        (root / "train/cat" / old).rename(root / "train/cat" / os.fsdecode(new))
    (root / "train/cat" / os.fsdecode(b"bad\xff.jpg")).write_bytes(b"")
    request = ask(root, image_size=image_size, max_bad_images=1)

    for _ in range(2):  # the second time from the cache
        data = imagefolder.load(request)
        seen = sum(int((batch.labels >= 0).sum()) for batch in data.train.eval_batches(range(data.train.size), 4))
        assert seen == 11
        assert data.train.bad_images == (r"train/cat/bad\xff.jpg",)


def test_a_folder_without_a_single_readable_image_is_refused(ask, make_tree) -> None:
    root = make_tree()
    for path in (root / "val").rglob("*.jpg"):
        path.write_bytes(b"")

    with pytest.raises(DataError, match=r"none of the 6 images in .*/val could be read"):
        imagefolder.load(ask(root, max_bad_images=100))
