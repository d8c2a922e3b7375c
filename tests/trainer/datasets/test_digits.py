import torch

from trainer.datasets import digits
from trainer.datasets.order import Order


def test_four_fifths_train_and_every_class_is_held_out_alike(ask) -> None:
    data = digits.load(ask())

    [held_out] = data.evaluation.eval_batches(range(360), 360)
    assert (data.train.size, data.evaluation.size, data.classes, data.image_size) == (1437, 360, 10, 32)
    assert held_out.labels.bincount().tolist() == [36, 36, 36, 36, 37, 36, 36, 36, 35, 36]


def test_images_have_the_mean_and_deviation_that_normalisation_assumes(ask) -> None:
    data = digits.load(ask())

    images = torch.cat([b.images for b in data.train.eval_batches(range(1437), 512)])

    assert abs(images.mean()) < 1e-3
    assert abs(images.std() - 1) < 1e-3


def test_the_images_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    table, official = digits._read_table(), load_digits()

    assert (table[:, :-1].reshape(-1, 8, 8) == official.images).all()
    assert (table[:, -1] == official.target).all()


def test_digits_are_shifted_but_not_mirrored(ask) -> None:
    data = digits.load(ask())
    [plain] = data.train.eval_batches(range(1437), 1437)
    order = Order(1437, 0, 0)

    [batch] = data.train.train_batches(order, [slice(0, 1437)])

    # Digits fill their image, so a shift of up to 4 pixels leaves the middle of most rows recognisable.
    original = plain.images[order.permutation]
    middle = slice(8, 24)
    same = (batch.images - original)[:, :, middle, middle].square().mean()
    mirrored = (batch.images - original.flip(3))[:, :, middle, middle].square().mean()
    assert same < mirrored
