"""Handwritten digits that come with scikit-learn: 1,797 real images of 8x8 pixels, nothing to download."""

import torch
from torch import Tensor

from trainer.datasets.base import Data, Request
from trainer.datasets.decoded import recall_decoded
from trainer.datasets.normalisation import DIGITS
from trainer.datasets.resident import Decoded, Images, resident_data, resized

SIDE = 32  # pixels, unless asked otherwise: what the small models are made for
BRIGHTEST = 16  # the images hold 0..16
HELD_OUT = 5  # every fifth image of a class is for evaluation


def load(request: Request) -> Data:
    """1,437 images to train on, 360 to evaluate, the same ones always; never mirrored."""
    side = request.image_size or SIDE
    path = request.cache_dir.expanduser() / f"digits-{side}.pt"
    decoded = recall_decoded(path, "1", lambda: _decode(side))
    return resident_data(decoded, DIGITS, flip=False, request=request)


def _decode(side: int) -> Decoded:
    from sklearn.datasets import load_digits  # Takes seconds to import, and the second start needs none of it.

    digits = load_digits()
    grey = (torch.from_numpy(digits.images) * (255 / BRIGHTEST)).round().to(torch.uint8)
    labels = torch.from_numpy(digits.target).long()
    pixels = resized(grey[..., None].expand(-1, -1, -1, 3), side)
    held_out = stratified(labels)
    return Decoded(
        Images(pixels[~held_out], labels[~held_out]),
        Images(pixels[held_out], labels[held_out]),
        classes=10,
    )


def stratified(labels: Tensor) -> Tensor:
    """(N,) bool: a fifth of the images of every class."""
    by_class = labels.argsort(stable=True)
    held_out = torch.zeros(len(labels), dtype=torch.bool)
    held_out[by_class[::HELD_OUT]] = True
    return held_out
