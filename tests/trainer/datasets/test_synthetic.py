import torch

from trainer.datasets import synthetic
from trainer.datasets.base import Batch
from trainer.datasets.order import Order
from trainer.datasets.synthetic import SyntheticSplit


def test_shapes_are_the_requested_ones(ask) -> None:
    data = synthetic.load(ask(image_size=16, synthetic_images=95, synthetic_classes=7, channels_last=True))

    [batch] = data.train.train_batches(Order(95, 0, 0), [slice(0, 8)])

    assert (data.train.size, data.evaluation.size, data.classes, data.image_size) == (95, 10, 7, 16)
    assert batch.images.shape == (8, 3, 16, 16)
    assert batch.images.is_contiguous(memory_format=torch.channels_last)
    assert int(batch.labels.max()) < 7


def test_a_batch_may_be_larger_than_the_pool_and_wrap_around() -> None:
    pool = Batch(torch.arange(3.0).view(3, 1, 1, 1), torch.arange(3))

    [batch] = SyntheticSplit(100, pool).train_batches(Order(100, 0, 0), [slice(4, 12)])

    assert batch.labels.tolist() == [1, 2, 0, 1, 2, 0, 1, 2]
