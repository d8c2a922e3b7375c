import torch

from trainer.batches import Batches
from trainer.datasets import synthetic
from trainer.datasets.base import Batch
from trainer.datasets.synthetic import SyntheticSplit
from trainer.distributed.sampler import Order, positions, shard


def test_shapes_are_the_asked_ones(ask) -> None:
    data = synthetic.load(ask(image_size=16, synthetic_images=95, synthetic_classes=7, channels_last=True))

    [batch] = data.train.train_batches(Order(95, 0, 0), [slice(0, 8)])

    assert (data.train.size, data.evaluation.size, data.classes, data.image_size) == (95, 10, 7, 16)
    assert batch.images.shape == (8, 3, 16, 16)
    assert batch.images.is_contiguous(memory_format=torch.channels_last)
    assert int(batch.labels.max()) < 7


def test_a_batch_is_a_view_that_costs_nothing(ask) -> None:
    data = synthetic.load(ask())

    first, again = data.train.train_batches(Order(100, 0, 0), [slice(0, 8), slice(0, 8)])

    assert first.images.data_ptr() == again.images.data_ptr()


def test_a_batch_may_be_larger_than_the_pool_and_wrap_around() -> None:
    pool = Batch(torch.arange(3.0).view(3, 1, 1, 1), torch.arange(3))

    [batch] = SyntheticSplit(100, pool).train_batches(Order(100, 0, 0), [slice(4, 12)])

    assert batch.labels.tolist() == [1, 2, 0, 1, 2, 0, 1, 2]


def test_two_ranks_together_see_the_same_images_as_one(ask) -> None:
    data = synthetic.load(ask(image_size=8))
    order = Order(100, 0, 0)

    alone = [b.images for b in data.train.train_batches(order, positions(Batches(8, 1, 1), 0, 1, 0, 2))]
    ranks = [data.train.train_batches(order, positions(Batches(4, 1, 2), r, 1, 0, 2)) for r in (0, 1)]

    joined = [torch.cat([b.images for b in step]) for step in zip(*ranks, strict=True)]
    assert torch.equal(torch.cat(joined), torch.cat(alone))


def test_evaluation_sees_the_same_images_with_any_number_of_ranks(ask) -> None:
    split = synthetic.load(ask(image_size=8)).evaluation

    [alone] = split.eval_batches(range(10), 10)
    parts = [next(split.eval_batches(shard(10, r, 3), 10)) for r in range(3)]

    for rank, part in enumerate(parts):
        assert torch.equal(part.images, alone.images[rank::3])
        assert torch.equal(part.labels, alone.labels[rank::3])


def test_a_seed_gives_the_same_images_again_and_another_seed_others(ask) -> None:
    images = [next(synthetic.load(ask(image_size=8, seed=s)).evaluation.eval_batches(range(4), 4)) for s in (0, 0, 1)]

    assert torch.equal(images[0].images, images[1].images)
    assert not torch.equal(images[0].images, images[2].images)
