"""Pixels to another size, and mirrored, by torch's vectorised kernel and NumPy, which release the GIL.

The antialiased bilinear filter gives Pillow's pixels to within one level of 255 in a fifth of its time
(tests/bench/RESULTS.md).  These functions run in threads of ours, so none may start threads of torch's.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from trainer.datasets.scratch import Scratch

Pixels = NDArray[np.uint8]
# What torch.nn.functional.interpolate(mode="bilinear", antialias=True) calls, which cannot write to memory of ours.
_interpolate = torch.ops.aten._upsample_bilinear2d_aa.out
_part = Scratch()


def resize(pixels: Pixels, to: Pixels, is_mirrored: bool = False) -> None:
    """Fills `to`, (size, size, 3) without gaps, with `pixels`, (H, W, 3), resized, and flipped left to right if asked.

    The filter is symmetric, so mirroring may come first: in the copy that is made in any case.
    """
    if to.shape == pixels.shape:
        _copy(pixels, to, is_mirrored)
        return
    # Rows without gaps, since torch would close them with threads.
    part = _part.lend(pixels.size).reshape(pixels.shape)
    _copy(pixels, part, is_mirrored)
    _interpolate(_as_torch_has_it(part), to.shape[:2], False, None, None, out=_as_torch_has_it(to))


def _copy(pixels: Pixels, to: Pixels, is_mirrored: bool) -> None:
    if not is_mirrored:
        to[...] = pixels
        return
    for channel in range(3):  # all three in one call would take five times as long
        to[:, :, channel] = pixels[:, ::-1, channel]


def _as_torch_has_it(pixels: Pixels) -> torch.Tensor:
    """(1, 3, H, W), channels last in memory, which is that of `pixels`."""
    return torch.from_numpy(pixels.reshape(1, *pixels.shape).transpose(0, 3, 1, 2))


def resized(pixels: Pixels, size: int) -> Pixels:
    """(H, W, 3) -> (size, size, 3)."""
    small = np.empty((size, size, 3), np.uint8)
    resize(pixels, small)
    return small
