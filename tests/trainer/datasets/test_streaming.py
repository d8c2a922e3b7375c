import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.trainer import parts
from trainer.config import Batches
from trainer.datasets import imagefolder
from trainer.datasets.base import UNREADABLE, Batch, Request
from trainer.datasets.order import Crops, Order, positions
from trainer.distributed.ranks import Ranks
from trainer.distributed.session import Session
from trainer.errors import SettingsError

MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


def together(batches: list[Batch]) -> Batch:
    return Batch(torch.cat([b.images for b in batches]), torch.cat([b.labels for b in batches]))


def trained(request: Request, batches: Batches, rank: int = 0, done: int = 0, updates: int = 3) -> list[Batch]:
    order = Order(12, seed=0, epoch=1)
    return list(imagefolder.load_large(request).train.train_batches(order, positions(batches, rank, 1, done, updates)))


def reference(path: Path, order: Order, position: int, size: int) -> torch.Tensor:
    """The same image by Pillow alone, which decodes alike where nothing is decoded smaller."""
    image = Image.open(path).convert("RGB")
    [view] = Crops(order, range(position, position + 1)).views()
    top, left, height, width = view.choose(image.height, image.width)
    small = image.crop((left, top, left + width, top + height)).resize((size, size), Image.Resampling.BILINEAR)
    pixels = torch.from_numpy(np.asarray(small).copy())
    return ((pixels.flip(1) if view.mirrored else pixels) / 255 - MEAN) / STD


def test_crops_and_mirroring_are_those_of_a_slow_reference(ask, make_tree) -> None:
    root, order = make_tree(side=40), Order(12, seed=0, epoch=1)

    batch = together(trained(ask(root, image_size=32), Batches(4, 1, 1)))

    paths = [root / "train" / name / f"{n}.jpg" for name in ("cat", "dog") for n in range(6)]
    expected = [reference(paths[i], order, place, 32) for place, i in enumerate(order.permutation.tolist())]
    assert torch.allclose(batch.images, torch.stack(expected).permute(0, 3, 1, 2), atol=0.02)  # a level of 255
    assert batch.labels.tolist() == [i // 6 for i in order.permutation.tolist()]


def test_images_grow_over_the_epochs_and_are_evaluated_at_full_size(ask, make_tree) -> None:
    data = imagefolder.load_large(ask(make_tree(), image_size=48, first_size=16, epochs=3))
    where = positions(Batches(4, 1, 1), 0, 1, 0, 1)

    shapes = [next(data.train.train_batches(Order(12, 0, epoch), where)).images.shape for epoch in (0, 1, 2, 0)]

    assert shapes == [(4, 3, 16, 16), (4, 3, 32, 32), (4, 3, 48, 48), (4, 3, 16, 16)]
    assert next(data.evaluation.eval_batches(range(2), 2)).images.shape == (2, 3, 48, 48)
    assert data.image_size == 48


@pytest.mark.parametrize(("wanted", "flag"), [
    ({"first_size": 4, "epochs": 3}, "--image-size-start 4"), ({"decodes_on_gpu": True}, "--decode gpu")
])  # fmt: skip
def test_what_only_streamed_images_can_have_is_refused_for_small_ones(ask, make_tree, wanted, flag: str) -> None:
    with pytest.raises(SettingsError, match=f"{flag} needs images that are streamed, and these are"):
        imagefolder.load(ask(make_tree(16), **wanted))


def test_evaluation_sees_the_middle_of_the_image(ask, make_tree) -> None:
    root = make_tree(train=1, val=1)
    image = np.zeros((256, 256, 3), np.uint8)
    image[16:240, 16:240] = 255
    for path in (root / "val").rglob("*.jpg"):
        Image.fromarray(image).save(path, quality=100, subsampling=0)

    [batch] = imagefolder.load_large(ask(root)).evaluation.eval_batches(range(2), 2)

    assert batch.images.shape == (2, 3, 224, 224)
    assert torch.allclose(batch.images[0], ((1 - MEAN) / STD)[:, None, None].expand(3, 224, 224), atol=0.1)


def test_stopping_early_leaves_no_thread(ask, make_tree) -> None:
    split = imagefolder.load_large(ask(make_tree(train=50), image_size=8)).train
    batches = split.train_batches(Order(100, 0, 0), positions(Batches(10, 1, 1), 0, 1, 0, 10))
    next(batches)

    batches.close()

    assert [t.name for t in threading.enumerate() if t.name.startswith("decode")] == []


def test_an_unreadable_image_weighs_nothing_and_is_named(ask, make_tree) -> None:
    root = make_tree()
    (root / "val/dog/1.jpg").write_bytes(b"")
    split = imagefolder.load_large(ask(root, image_size=8, max_bad_images=1)).evaluation

    [batch] = split.eval_batches(range(6), 6)
    list(split.eval_batches(range(6), 6))

    assert batch.labels.tolist() == [0, 0, 0, 1, UNREADABLE, 1]
    assert torch.equal(batch.images[4], batch.images[0])
    assert split.bad_images == ("val/dog/1.jpg",)


def test_second_start_lists_no_folder_and_notices_a_new_file(ask, make_tree, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainer.datasets import cache

    root, listed = make_tree(), []
    list_files = cache.list_files
    monkeypatch.setattr(cache, "list_files", lambda *args: listed.append(args[0].name) or list_files(*args))

    imagefolder.load_large(ask(root))
    imagefolder.load_large(ask(root))
    (root / "train/cat/new.jpg").write_bytes((root / "train/cat/0.jpg").read_bytes())
    data = imagefolder.load_large(ask(root))

    assert listed == ["train", "val", "train"]
    assert data.train.size == 13


def test_a_run_stopped_while_images_grow_resumes_bit_for_bit(make_tree, tmp_path: Path) -> None:
    """Two epochs of 32 and 64 px, stopped inside the second."""
    session, torch_state = Session(Ranks(), torch.device("cpu"), 60.0), torch.get_rng_state()
    settings = parts.config(
        model="shufflenet_v2_x0_5", dataset="imagenet", data_dir=make_tree(side=70), cache_dir=tmp_path / "cache",
        image_size=64, image_size_start=32, global_batch_size=4, epochs=2, lr=0.001,
    )  # fmt: skip
    states = []
    for name, stops in (("unbroken", [float("inf")]), ("broken", [4, float("inf")])):
        (tmp_path / name).mkdir()
        for stop_at in stops:
            torch.set_rng_state(torch_state)
            training, anew = parts.trained(session, settings, tmp_path / name, stop_at=stop_at)
            assert anew == []
            if stop_at == 4:
                assert (training.progress.epoch, training.progress.images) == (1, 4)
        states.append(parts.state(tmp_path / name))

    assert parts.differing(*states) == []


def test_images_that_would_not_grow_are_refused(ask, make_tree) -> None:
    with pytest.raises(SettingsError, match="--image-size-start 48"):
        imagefolder.load_large(ask(make_tree(), image_size=32, first_size=48, epochs=3))
