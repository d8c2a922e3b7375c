"""Pixels to another size, and mirrored, by torch's vectorised kernels, which release the GIL.

The antialiased bilinear filter gives Pillow's pixels to within one level of 255 in a fifth of its time
(tests/bench/RESULTS.md).  These functions run in threads of ours, so none may start threads of torch's.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from trainer.datasets.scratch import Scratch

Pixels = NDArray[np.uint8]
ONE_THREAD = 32_768  # elements up to which torch's element-wise kernels start no threads: at::internal::GRAIN_SIZE
# What torch.nn.functional.interpolate(mode="bilinear", antialias=True) calls, which cannot write to memory of ours.
_interpolate = torch.ops.aten._upsample_bilinear2d_aa.out
_part = Scratch()


def resize(pixels: Pixels, to: Pixels) -> None:
    """Fills `to`, (size, size, 3) without gaps, with `pixels`, (H, W, 3), resized."""
    if to.shape == pixels.shape:
        to[...] = pixels
        return
    # Rows without gaps, since torch would close them with threads.
    part = _part.lend(pixels.size).reshape(pixels.shape)
    part[...] = pixels
    _interpolate(_as_torch_has_it(part), to.shape[:2], False, None, None, out=_as_torch_has_it(to))


def _as_torch_has_it(pixels: Pixels) -> torch.Tensor:
    """(1, 3, H, W), channels last in memory, which is that of `pixels`."""
    return torch.from_numpy(pixels.reshape(1, *pixels.shape).transpose(0, 3, 1, 2))


def resized(pixels: Pixels, size: int) -> Pixels:
    """(H, W, 3) -> (size, size, 3)."""
    small = np.empty((size, size, 3), np.uint8)
    resize(pixels, small)
    return small


def mirrored(pixels: Pixels) -> Pixels:
    """(H, W, 3), flipped left to right."""
    image = torch.from_numpy(np.require(pixels, requirements=["W"]))
    if pixels.size <= ONE_THREAD:
        return image.flip(1).numpy()
    rows = max(1, ONE_THREAD // (3 * pixels.shape[1]))
    whole: Pixels = torch.cat([piece.flip(1) for piece in image.split(rows)]).numpy()
    return whole
