"""Which part of an image to look at.  Pure: sizes and random numbers in, a crop out."""

import math
from typing import NamedTuple

import numpy as np

from trainer.distributed.sampler import Order

# RandomResizedCrop of Szegedy et al. 2014 (arXiv:1409.4842), with torchvision's defaults.
SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
ATTEMPTS = 10
# Evaluation looks at the middle 224 of 256 pixels, as is usual for ImageNet.
MIDDLE = 224 / 256


class Crop(NamedTuple):
    """A rectangle within an image, in its pixels."""

    top: int
    left: int
    height: int
    width: int


def keyed_generator(order: Order, position: int) -> np.random.Generator:
    """Random numbers that depend on the seed, the epoch and the position within it, and on nothing else."""
    return np.random.Generator(np.random.Philox(key=[order.seed % 2**64, order.epoch * 2**40 + position]))


def random_crop(height: int, width: int, rng: np.random.Generator) -> Crop:
    """A crop of 8-100% of the area and an aspect ratio of 3/4-4/3, or the middle where none fits."""
    log_ratios = (math.log(RATIO[0]), math.log(RATIO[1]))
    for _ in range(ATTEMPTS):
        area = height * width * rng.uniform(*SCALE)
        ratio = math.exp(rng.uniform(*log_ratios))
        h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < h <= height and 0 < w <= width:
            return Crop(int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1)), h, w)
    h = min(height, round(width / RATIO[0]))
    w = min(width, round(height * RATIO[1]))
    return _centred(height, width, h, w)


def middle_crop(height: int, width: int, share: float = MIDDLE) -> Crop:
    """The centred square whose side is `share` of the shorter one.

    Resized to S, this is Resize(S / share) then CenterCrop(S) to within a pixel's rounding.
    """
    side = max(1, round(min(height, width) * share))
    return _centred(height, width, side, side)


def _centred(height: int, width: int, h: int, w: int) -> Crop:
    return Crop((height - h) // 2, (width - w) // 2, h, w)
