"""Batches for a GPU out of what processes have decoded."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainer.datasets.normalisation import Normaliser
from trainer.datasets.processes import Decoded
from trainer.datasets.rows import unpacked


def gathered(parts: Sequence[Decoded], normalise: Normaliser, device: torch.device) -> tuple[Tensor, dict[int, str]]:
    """(B, 3, S, S) float32 on the device, of at least one part; and which rows could not be read, and why.

    Unreadable images are copies of a readable one, rather than black, for batch norm's sake.
    """
    good = next((part for part in parts if len(part.bad) < len(part.flips)), None)
    bad: dict[int, str] = {}
    start = 0
    for part in parts:
        for row, why in part.bad.items():
            bad[start + row] = why
            part.pixels[row] = 0 if good is None else good.pixels[_first_readable(good)]
            part.flips[row] = False
        start += len(part.flips)
    images = [unpacked(part.pixels, part.flips, normalise, device) for part in parts]
    return images[0] if len(images) == 1 else torch.cat(images), bad


def _first_readable(part: Decoded) -> int:
    return next(row for row in range(len(part.flips)) if row not in part.bad)
