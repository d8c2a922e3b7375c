"""What the training loop relies on, for every kind of data: images in memory, in files, in shards, and synthetic."""

from pathlib import Path

import pytest
import torch

from tests.trainer.datasets.test_streaming import together
from trainer.config import Batches
from trainer.datasets import imagefolder, synthetic
from trainer.datasets.base import Batch, Data
from trainer.datasets.order import Order, positions, shard

ALONE, ORDER = Batches(4, 1, 1), Order(12, seed=0, epoch=1)


@pytest.fixture(params=["resident", "streamed", "shards", "synthetic"])
def data(request: pytest.FixtureRequest, ask, make_tree, photos, prepared, tmp_path: Path) -> Data:
    """Twelve images to train on."""
    if request.param == "resident":
        return imagefolder.load(ask(make_tree()))
    if request.param == "streamed":
        return imagefolder.load_large(ask(make_tree(), image_size=8))
    if request.param == "synthetic":
        return synthetic.load(ask(image_size=8, synthetic_images=12))
    prepared(photos())
    return imagefolder.load_large(ask(tmp_path / "prepared", image_size=32))


def trained(data: Data, batches: Batches, rank: int = 0, done: int = 0, updates: int = 3) -> list[Batch]:
    return list(data.train.train_batches(ORDER, positions(batches, rank, 1, done, updates)))


def same(one: Batch, other: Batch) -> bool:
    return torch.equal(one.images, other.images) and torch.equal(one.labels, other.labels)


def test_two_ranks_together_see_the_same_augmented_images_as_one(data: Data) -> None:
    ranks = [trained(data, Batches(2, 1, 2), rank) for rank in (0, 1)]

    joined = together([batch for step in zip(*ranks, strict=True) for batch in step])
    assert same(joined, together(trained(data, ALONE)))


def test_a_resumed_epoch_goes_on_with_the_same_batches(data: Data) -> None:
    unbroken = trained(data, ALONE)
    [resumed] = trained(data, ALONE, done=8, updates=1)

    assert same(resumed, unbroken[2])


def test_evaluation_covers_each_image_once_at_any_number_of_ranks(data: Data) -> None:
    size = data.evaluation.size
    alone = together(list(data.evaluation.eval_batches(range(size), size)))

    for rank in range(2):
        part = together(list(data.evaluation.eval_batches(shard(size, rank, 2), 2)))
        assert same(part, Batch(alone.images[rank::2], alone.labels[rank::2]))
