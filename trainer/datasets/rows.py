"""The images of a batch in the making: what threads write, row by row, and how it becomes the model's input.

For a CPU the threads normalise as well, while an image is in the cache; for a GPU they write bytes, a quarter of
what must be copied there, and the GPU mirrors and normalises.
"""

import weakref
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.datasets.decode import put_crop
from trainer.datasets.looks import View
from trainer.datasets.normalisation import Normaliser
from trainer.datasets.resize import Pixels
from trainer.datasets.scratch import Scratch

_small = Scratch()


class Rows(Protocol):
    """Places for the images of one batch.  Threads fill rows of their own, so nothing needs a lock."""

    def put(self, row: int, data: bytes, view: View) -> None:
        """Fills a row with what a file holds, seen as `view` says.  Raises UnreadableError."""
        ...

    def settle(self) -> dict[int, str]:
        """Ends what threads have begun, once all rows were put; returns the rows that turn out unreadable, and why."""
        ...

    def copy(self, row: int, source: int | None) -> None:
        """Fills a row with another one, or with black."""
        ...

    def images(self) -> Tensor:
        """(B, 3, S, S) float32, normalised, on the device.  All rows must have been filled."""
        ...


class Memory:
    """Memory of batches, lent again once nobody holds a tensor in it.

    Fresh pages cost the system more time than an image takes to be normalised: tests/bench/RESULTS.md.
    """

    def __init__(self) -> None:
        self._free: dict[tuple[int, ...], list[NDArray[np.float32]]] = {}

    def lend(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """An array of any content, taken back when it, and every tensor made of it, has gone."""
        if shape not in self._free:  # what had another shape has had its time
            self._free = {shape: []}
        free = self._free[shape]
        whole = free.pop() if free else np.empty(shape, np.float32)
        lent = whole[:]
        weakref.finalize(lent, free.append, whole).atexit = False
        return lent


class FloatRows:
    """Rows of a batch for the CPU."""

    def __init__(self, count: int, size: int, normalise: Normaliser, memory: Memory, channels_last: bool) -> None:
        self._size, self._normalise = size, normalise
        floats = memory.lend((count, size, size, 3) if channels_last else (count, 3, size, size))
        self._images = torch.from_numpy(floats)
        if channels_last:
            self._images, self._rows = self._images.permute(0, 3, 1, 2), floats
        else:
            self._rows = floats.transpose(0, 2, 3, 1)

    def put(self, row: int, data: bytes, view: View) -> None:
        pixels = _small.lend(self._size**2 * 3).reshape(self._size, self._size, 3)
        put_crop(data, view.choose, pixels, view.mirrored)
        self._normalise.write(pixels, self._rows[row])

    def settle(self) -> dict[int, str]:
        return {}

    def copy(self, row: int, source: int | None) -> None:
        if source is None:
            self._normalise.write(np.zeros(self._rows.shape[1:], np.uint8), self._rows[row])
        else:
            self._rows[row] = self._rows[source]

    def images(self) -> Tensor:
        return self._images


class PixelRows:
    """Rows of bytes.  pixels: (B, S, S, 3) uint8; flips: (B,) bool, true for what is still to be mirrored."""

    def __init__(self, pixels: Tensor, flips: Tensor) -> None:
        self.pixels, self.flips = pixels, flips
        # Their memory as NumPy's arrays, of which a row is sooner found.
        self._rows: Pixels = pixels.numpy()
        self._flips = flips.numpy()

    def put(self, row: int, data: bytes, view: View) -> None:
        put_crop(data, view.choose, self._rows[row])
        self._flips[row] = view.mirrored


class ByteRows(PixelRows):
    """Rows of a batch for a GPU, in memory from which it copies while the CPU goes on."""

    def __init__(self, count: int, size: int, normalise: Normaliser, device: torch.device) -> None:
        pinned = device.type == "cuda"
        pixels = torch.empty((count, size, size, 3), dtype=torch.uint8, pin_memory=pinned)
        super().__init__(pixels, torch.zeros(count, dtype=torch.bool, pin_memory=pinned))
        self._device, self._normalise = device, normalise

    def settle(self) -> dict[int, str]:
        return {}

    def copy(self, row: int, source: int | None) -> None:
        self._rows[row] = 0 if source is None else self._rows[source]
        self._flips[row] = False if source is None else self._flips[source]

    def images(self) -> Tensor:
        return unpacked(self.pixels, self.flips, self._normalise, self._device)


def unpacked(pixels: Tensor, flips: Tensor, normalise: Normaliser, device: torch.device) -> Tensor:
    """(B, 3, S, S) float32 on the device.  pixels, flips: as PixelRows has them."""
    there = [part.to(device, non_blocking=True) for part in (pixels, flips)]
    return normalise(mirror(*there))


def mirror(pixels: Tensor, flips: Tensor) -> Tensor:
    """(B, S, S, 3), with the images where `flips` (B,) is true flipped left to right."""
    # Picking whole images needs no look at the mask, for which the GPU would have to be waited for, as [mask] does.
    both = torch.cat([pixels, pixels.flip(2)])
    return both.index_select(0, torch.arange(len(pixels), device=pixels.device) + flips * len(pixels))
