"""Memory that a thread decodes and resizes in, image after image.

Memory asked for anew for each image, or each batch, costs the system fresh pages: tests/bench/RESULTS.md has how much.
"""

import threading

import numpy as np
from numpy.typing import NDArray

LARGEST_BYTES = 2**25  # that a thread keeps: an image of 11 million pixels


class Scratch(threading.local):
    """One piece of memory for each thread that asks."""

    def __init__(self) -> None:
        self._kept: NDArray[np.uint8] = np.empty(0, np.uint8)

    def lend(self, count: int) -> NDArray[np.uint8]:
        """(count,) of any content, good until this thread asks again.  What is very large is made anew."""
        if count > LARGEST_BYTES:
            return np.empty(count, np.uint8)
        if count > self._kept.size:
            self._kept = np.empty(count + count // 2, np.uint8)  # so that it grows a few times only
        return self._kept[:count]
