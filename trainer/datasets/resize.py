"""Pixels to another size, and mirrored, by torch's vectorised kernels, which release the GIL.

The antialiased bilinear filter gives Pillow's pixels to within one level of 255 in a quarter of its time
(tests/bench/RESULTS.md).  Both functions run in threads of ours, so neither may start threads of torch's.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import interpolate

Pixels = NDArray[np.uint8]
ONE_THREAD = 32_768  # elements up to which torch's element-wise kernels start no threads: at::internal::GRAIN_SIZE


def resized(pixels: Pixels, size: int) -> Pixels:
    """(H, W, 3) -> (size, size, 3)."""
    if pixels.shape[:2] == (size, size):
        return pixels
    # Rows without gaps, since torch would close them with threads; writeable, since it warns of what is not.
    images = torch.from_numpy(np.require(pixels, requirements=["C", "W"]))[None].permute(0, 3, 1, 2)
    small = interpolate(images, (size, size), mode="bilinear", antialias=True)
    whole: Pixels = small.permute(0, 2, 3, 1)[0].numpy()
    return whole


def mirrored(pixels: Pixels) -> Pixels:
    """(H, W, 3), flipped left to right."""
    rows = max(1, ONE_THREAD // (3 * pixels.shape[1]))
    pieces = torch.from_numpy(np.require(pixels, requirements=["W"])).split(rows)
    whole: Pixels = torch.cat([piece.flip(1) for piece in pieces]).numpy()
    return whole
