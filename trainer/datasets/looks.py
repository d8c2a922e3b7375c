"""How training and evaluation look at the images of an epoch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from trainer.datasets.crops import PHILOX_BLOCK, Crop, draw, middle_crop, random_crop
from trainer.distributed.sampler import Order


class View(NamedTuple):
    """How to look at one image.  choose: (height, width) -> crop."""

    choose: Callable[[int, int], Crop]
    mirrored: bool


class Looks(NamedTuple):
    """How to look at images at consecutive positions: randomly, as `order` has it, or at their middles if it is None.

    A few bytes, from which any process makes the same views.
    """

    order: Order | None
    positions: range

    def of(self, rows: range) -> Looks:
        """Those of some rows."""
        return Looks(self.order, self.positions[rows.start : rows.stop])

    def views(self) -> list[View]:
        """One for each image."""
        if self.order is None:  # evaluation, and training without augmentation
            return [View(middle_crop, False)] * len(self.positions)
        return [
            View(partial(random_crop, draws=draws[PHILOX_BLOCK:]), mirrored=draws[0] < 0.5)
            for draws in draw(self.order, self.positions)
        ]
