"""Decode image files to resized crops, and normalise pixels.

simplejpeg reads JPEGs; Pillow reads the other FORMATS and what simplejpeg refuses.  torch's vectorised kernel resizes:
its antialiased bilinear filter matches Pillow's to within one level of 255 in a fifth of the time
(tests/bench/RESULTS.md).  All three release the GIL, so threads suffice; no call here may start torch's own threads.
"""

import math
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import simplejpeg
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.datasets.base import Normalisation
from trainer.datasets.encoded import Pixels, as_unreadable, decoded, jpeg_shape
from trainer.datasets.order import Crop

# Decoding to 1/2, 1/4 or 1/8 saves time; decoding to 7/8 or 3/4 costs more than it saves.
WORTHWHILE = 2.0
ROWS = 16  # at most this many rows normalised at once: fewer take longer, more need more of the CPU cache
MOST_KEPT = 2**25  # bytes of scratch memory that a thread keeps: an image of 11 million pixels
# The operator behind torch.nn.functional.interpolate(mode="bilinear", antialias=True), which has no `out` argument.
_interpolate = torch.ops.aten._upsample_bilinear2d_aa.out


class Scratch(threading.local):
    """A buffer per thread, reused for one image after another.

    A new allocation per image costs page faults: see tests/bench/RESULTS.md.
    """

    def __init__(self) -> None:
        self._kept: NDArray[np.uint8] = np.empty(0, np.uint8)

    def lend(self, count: int) -> NDArray[np.uint8]:
        """(count,) uninitialised, valid until this thread's next call.  Very large buffers are not kept."""
        if count > MOST_KEPT:
            return np.empty(count, np.uint8)
        if count > self._kept.size:
            self._kept = np.empty(count + count // 2, np.uint8)  # with room, so that it grows only a few times
        return self._kept[:count]


_whole, _part = Scratch(), Scratch()


def read_crop(path: Path, choose: Callable[[int, int], Crop], size: int) -> Pixels:
    """Apply crop() to the content of a file.  Raises UnreadableError."""
    try:
        data = path.read_bytes()
    except Exception as error:
        raise as_unreadable(error) from error
    return crop(data, choose, size)


def crop(data: bytes, choose: Callable[[int, int], Crop], size: int) -> Pixels:
    """(size, size, 3) uint8: the crop that `choose(height, width)` picks, resized.  Raises UnreadableError."""
    pixels = np.empty((size, size, 3), np.uint8)
    put_crop(data, choose, pixels)
    return pixels


def put_crop(data: bytes, choose: Callable[[int, int], Crop], to: Pixels, is_mirrored: bool = False) -> None:
    """Write the result of crop(), or its mirror image, to `to`, (size, size, 3) contiguous.  Raises UnreadableError."""
    try:
        _put(data, choose, to, is_mirrored)
    except Exception as error:  # decoders raise anything for garbage: struct.error, SyntaxError, zlib.error, ...
        raise as_unreadable(error) from error


def _put(data: bytes, choose: Callable[[int, int], Crop], to: Pixels, is_mirrored: bool) -> None:
    part = _of_jpeg(data, choose, len(to))
    if part is None:
        pixels = decoded(data)
        part = _cut(pixels, choose(*pixels.shape[:2]))
    resize(part, to, is_mirrored)


def _of_jpeg(data: bytes, choose: Callable[[int, int], Crop], size: int) -> Pixels | None:
    """The crop of a JPEG, decoded as small as `size` allows; None if simplejpeg cannot decode it."""
    shape = jpeg_shape(data)
    if shape is None:
        return None
    height, width = shape
    part = choose(height, width)
    try:
        pixels = simplejpeg.decode_jpeg(
            data,
            min_height=math.ceil(height * size / part.height),
            min_width=math.ceil(width * size / part.width),
            min_factor=WORTHWHILE,
            buffer=_whole.lend(height * width * 3),
        )
    except ValueError:  # also raised for libjpeg's warnings
        return None
    return _cut(pixels, _shrunk(part, height, pixels.shape[0]))


def _cut(pixels: Pixels, part: Crop) -> Pixels:
    return pixels[part.top : part.top + part.height, part.left : part.left + part.width]


def _shrunk(crop: Crop, height: int, decoded_height: int) -> Crop:
    """The same crop in an image that was decoded to a number of eighths, rounded up, inferred from its height."""
    if decoded_height == height:
        return crop
    scale = max(1, round(8 * decoded_height / height)) / 8
    top, left = round(crop.top * scale), round(crop.left * scale)
    bottom, right = round((crop.top + crop.height) * scale), round((crop.left + crop.width) * scale)
    return Crop(top, left, max(1, bottom - top), max(1, right - left))


def resize(pixels: Pixels, to: Pixels, is_mirrored: bool = False) -> None:
    """Resize `pixels`, (H, W, 3), into `to`, (size, size, 3) contiguous, mirrored left to right if asked.

    The filter is symmetric, so the image can be mirrored first, in the copy that is needed anyway.
    """
    if to.shape == pixels.shape:
        _copy(pixels, to, is_mirrored)
        return
    # Copied to contiguous rows; otherwise torch would do it, with threads.
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
    """A (1, 3, H, W) channels-last view of `pixels`."""
    return torch.from_numpy(pixels.reshape(1, *pixels.shape).transpose(0, 3, 1, 2))


class Normaliser:
    """Convert (B, S, S, 3) uint8 images to normalised (B, 3, S, S) float32, S = `size`, on their device."""

    def __init__(self, normalisation: Normalisation, size: int, device: torch.device, channels_last: bool) -> None:
        mean, std = torch.tensor(normalisation.mean), torch.tensor(normalisation.std)
        # Repeated over a whole row of pixels: broadcasting over the three channels alone is 8 times slower on a CPU.
        scale, offset = (1 / (255 * std)).repeat(size), (-mean / std).repeat(size)
        self._scale, self._offset = scale.to(device), offset.to(device)
        self._row_scale, self._row_offset = scale.numpy(), offset.numpy()
        rows = next(rows for rows in range(ROWS, 0, -1) if size % rows == 0)
        self._scales, self._offsets = np.tile(self._row_scale, rows), np.tile(self._row_offset, rows)
        self._channels_last = channels_last

    def __call__(self, images: Tensor) -> Tensor:
        """(x / 255 - mean) / std.  images: contiguous.  The result is NHWC in memory if channels_last, else NCHW."""
        rows = images.flatten(2).float().mul_(self._scale).add_(self._offset)
        normalised = rows.view(images.shape).permute(0, 3, 1, 2)
        return normalised if self._channels_last else normalised.contiguous()

    def write(self, pixels: Pixels, to: NDArray[np.float32]) -> None:
        """Normalise one image, (S, S, 3), on the CPU, within this thread.

        to: contiguous (S, S, 3), or a view of that shape into (3, S, S).
        """
        if not to.flags.c_contiguous:
            for channel in range(3):  # all three in one call would take ten times as long
                plane = to[:, :, channel]
                plane[...] = pixels[:, :, channel]
                np.multiply(plane, self._row_scale[channel], out=plane)
                np.add(plane, self._row_offset[channel], out=plane)
            return
        floats = to.reshape(-1, len(self._scales))
        floats[...] = pixels.reshape(floats.shape)
        np.multiply(floats, self._scales, out=floats)
        np.add(floats, self._offsets, out=floats)
