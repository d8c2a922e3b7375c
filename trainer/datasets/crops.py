"""Which part of each image of an epoch is trained or evaluated on, and whether it is mirrored.

Pure: sizes, seeds and positions in, crops out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from trainer.distributed.sampler import Order

# RandomResizedCrop of Szegedy et al. 2014 (arXiv:1409.4842), with torchvision's defaults.
SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
ATTEMPTS = 10
PHILOX_BLOCK = 4  # numbers that Philox makes at a time
DRAWS = 4 * ATTEMPTS + PHILOX_BLOCK  # for an image: four an attempt, and one for mirroring
# Evaluation looks at the middle 224 of 256 pixels, as is usual for ImageNet.
MIDDLE = 224 / 256


class Crop(NamedTuple):
    """A rectangle within an image, in its pixels."""

    top: int
    left: int
    height: int
    width: int


def draw(order: Order, positions: range) -> list[list[float]]:
    """DRAWS random numbers from 0 to 1 for each of consecutive positions of an epoch.

    They depend on the seed, the epoch and the position, and on nothing else: each position has its own part of one
    stream, which Philox can begin anywhere.
    """
    stream = np.random.Philox(key=[order.seed % 2**64, order.epoch], counter=positions.start * (DRAWS // PHILOX_BLOCK))
    numbers: list[list[float]] = np.random.Generator(stream).random((len(positions), DRAWS)).tolist()
    return numbers


def random_crop(height: int, width: int, draws: Sequence[float]) -> Crop:
    """A crop of 8-100% of the area and an aspect ratio of 3/4-4/3, or the middle where none fits.

    draws: 4 * ATTEMPTS random numbers from 0 to 1.
    """
    smallest, range_of_ratios = math.log(RATIO[0]), math.log(RATIO[1]) - math.log(RATIO[0])
    for at in range(0, 4 * ATTEMPTS, 4):
        size, shape, down, across = draws[at : at + 4]
        area = height * width * (SCALE[0] + size * (SCALE[1] - SCALE[0]))
        ratio = math.exp(smallest + shape * range_of_ratios)
        h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < h <= height and 0 < w <= width:
            return Crop(int(down * (height - h + 1)), int(across * (width - w + 1)), h, w)
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


class View(NamedTuple):
    """The crop of one image.  choose: (height, width) -> crop."""

    choose: Callable[[int, int], Crop]
    mirrored: bool


class Crops(NamedTuple):
    """The crops of images at consecutive positions: random ones of `order`, or their middles if it is None.

    A few bytes, from which any process makes the same views.
    """

    order: Order | None
    positions: range

    def of(self, rows: range) -> Crops:
        """Those of some rows."""
        return Crops(self.order, self.positions[rows.start : rows.stop])

    def views(self) -> list[View]:
        """One for each image."""
        if self.order is None:  # evaluation, and training without augmentation
            return [View(middle_crop, False)] * len(self.positions)
        return [
            View(partial(random_crop, draws=draws[PHILOX_BLOCK:]), mirrored=draws[0] < 0.5)
            for draws in draw(self.order, self.positions)
        ]
