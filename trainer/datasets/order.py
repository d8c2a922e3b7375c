"""The order of an epoch's images, their crops and their mirroring: all pure functions of (seed, epoch).

Because no state is carried from step to step, k ranks together see the same global batches as one rank would, and a
resumed run continues with exactly the next image.  Progress within an epoch is counted in images, not in updates, so
that it does not depend on the number of ranks or the batch size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from trainer.config import Batches

# RandomResizedCrop of Szegedy et al. 2014 (arXiv:1409.4842), with torchvision's defaults.
SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
ATTEMPTS = 10
PHILOX_BLOCK = 4  # numbers that Philox generates at a time
DRAWS = 4 * ATTEMPTS + PHILOX_BLOCK  # per image: four per attempt, and a block whose first decides on mirroring
# Evaluation uses the middle 224 of 256 pixels, as is usual for ImageNet.
MIDDLE = 224 / 256


@dataclass(frozen=True)
class Order:
    """The order in which one epoch visits `size` images, and its random numbers."""

    size: int
    seed: int
    epoch: int

    @cached_property
    def permutation(self) -> Tensor:
        """(size,) int64 on the CPU: the image at each position of the epoch."""
        return torch.randperm(self.size, generator=self.generator(0))

    def generator(self, stream: int) -> torch.Generator:
        """A CPU generator that depends only on seed, epoch and `stream`; use one stream per purpose."""
        # SplitMix-like mixing: neighbouring seeds and epochs must not give related sequences.
        mixed = (self.seed * 0x9E3779B97F4A7C15 + self.epoch * 0xBF58476D1CE4E5B9 + stream * 0x94D049BB133111EB) % 2**63
        return torch.Generator().manual_seed(mixed)


def updates_left(size: int, done: int, batches: Batches) -> int:
    """How many whole updates fit in the rest of an epoch of `size` images after `done`; a remainder is dropped."""
    return max(0, size - done) // batches.per_update


def positions(batches: Batches, replica: int, replicas_here: int, done: int, updates: int) -> list[slice]:
    """Positions in the epoch of this process's images for the next `updates`: one slice per forward pass.

    done: images that all ranks together have trained on in this epoch; replica: index of this process's first replica;
    replicas_here: how many replicas it drives (more than one only under DataParallel).
    """
    width = batches.per_replica * batches.replicas
    first = done + batches.per_replica * replica
    length = batches.per_replica * replicas_here
    starts = range(first, first + updates * batches.accumulate * width, width)
    return [slice(start, start + length) for start in starts]


def shard(size: int, rank: int, world_size: int) -> range:
    """This rank's share of `size` evaluation images, without padding: each image belongs to exactly one rank."""
    return range(rank, size, world_size)


# ---- Crops: pure functions of image sizes, seeds and positions


class Crop(NamedTuple):
    """A rectangle within an image, in its pixels."""

    top: int
    left: int
    height: int
    width: int


def draw(order: Order, positions: range) -> list[list[float]]:
    """DRAWS random numbers from 0 to 1 for each of the consecutive positions of an epoch.

    They depend only on seed, epoch and position: each position has its own part of one Philox stream, which can start
    anywhere.
    """
    stream = np.random.Philox(key=[order.seed % 2**64, order.epoch], counter=positions.start * (DRAWS // PHILOX_BLOCK))
    numbers: list[list[float]] = np.random.Generator(stream).random((len(positions), DRAWS)).tolist()
    return numbers


def random_crop(height: int, width: int, draws: Sequence[float]) -> Crop:
    """A crop of 8-100% of the area and an aspect ratio of 3/4-4/3, or the centre if no attempt fits.

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
    """The centred square whose side is `share` of the shorter side.

    Resized to S, it equals Resize(S / share) then CenterCrop(S) to within a pixel of rounding.
    """
    side = max(1, round(min(height, width) * share))
    return _centred(height, width, side, side)


def _centred(height: int, width: int, h: int, w: int) -> Crop:
    return Crop((height - h) // 2, (width - w) // 2, h, w)


class View(NamedTuple):
    """The crop of one image, and whether it is mirrored."""

    choose: Callable[[int, int], Crop]  # (height, width) -> crop
    mirrored: bool


class Crops(NamedTuple):
    """The crops of images at consecutive positions: random ones drawn from `order`, or centre crops if it is None.

    Small enough to send to another process, which derives the same views from it.
    """

    order: Order | None
    positions: range

    def of(self, rows: range) -> Crops:
        """The crops of some rows."""
        return Crops(self.order, self.positions[rows.start : rows.stop])

    def views(self) -> list[View]:
        """One view for each image."""
        if self.order is None:  # evaluation, and training without augmentation
            return [View(middle_crop, False)] * len(self.positions)
        return [
            View(partial(random_crop, draws=draws[PHILOX_BLOCK:]), mirrored=draws[0] < 0.5)
            for draws in draw(self.order, self.positions)
        ]
