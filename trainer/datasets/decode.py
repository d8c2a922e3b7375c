"""From the bytes of an image file to pixels: simplejpeg for JPEGs, Pillow for the other FORMATS and what it refuses.

Both release the GIL while they work, so threads suffice.
"""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import simplejpeg

from trainer.datasets.crops import Crop
from trainer.datasets.encoded import LARGEST_BYTES, because, decoded, jpeg_shape
from trainer.datasets.resize import Pixels as Pixels
from trainer.datasets.resize import resize
from trainer.datasets.scratch import Scratch
from trainer.files import read_regular

# Decoding to 1/2, 1/4 or 1/8 saves time; to 7/8 or 3/4 costs more than it saves.
WORTHWHILE = 2.0
_whole = Scratch()


def read_crop(path: Path, choose: Callable[[int, int], Crop], size: int) -> Pixels:
    """`crop` of what a file holds.  Raises UnreadableError."""
    try:
        data = read_regular(path, LARGEST_BYTES)
    except Exception as error:
        raise because(error) from error
    return crop(data, choose, size)


def crop(data: bytes, choose: Callable[[int, int], Crop], size: int) -> Pixels:
    """(size, size, 3) uint8: the crop that `choose(height, width)` picks, resized.  Raises UnreadableError."""
    pixels = np.empty((size, size, 3), np.uint8)
    put_crop(data, choose, pixels)
    return pixels


def put_crop(data: bytes, choose: Callable[[int, int], Crop], to: Pixels, is_mirrored: bool = False) -> None:
    """Fills `to`, (size, size, 3) without gaps, with what crop() gives or its mirror image.  Raises UnreadableError."""
    try:
        _put(data, choose, to, is_mirrored)
    except Exception as error:  # Fed with garbage, decoders raise anything: struct.error, SyntaxError, zlib.error, ...
        raise because(error) from error


def _put(data: bytes, choose: Callable[[int, int], Crop], to: Pixels, is_mirrored: bool) -> None:
    part = _of_jpeg(data, choose, len(to))
    if part is None:
        pixels = decoded(data)
        part = _cut(pixels, choose(*pixels.shape[:2]))
    resize(part, to, is_mirrored)


def _of_jpeg(data: bytes, choose: Callable[[int, int], Crop], size: int) -> Pixels | None:
    """The crop, for `size` pixels, of a JPEG that simplejpeg decodes; else None."""
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
    except ValueError:  # at warnings of libjpeg's, too
        return None
    return _cut(pixels, _shrunk(part, height, pixels.shape[0]))


def _cut(pixels: Pixels, part: Crop) -> Pixels:
    return pixels[part.top : part.top + part.height, part.left : part.left + part.width]


def _shrunk(crop: Crop, height: int, decoded_height: int) -> Crop:
    """The same crop in an image that was decoded smaller: to some eighths, rounded up, of which its height tells."""
    if decoded_height == height:
        return crop
    scale = max(1, round(8 * decoded_height / height)) / 8
    top, left = round(crop.top * scale), round(crop.left * scale)
    bottom, right = round((crop.top + crop.height) * scale), round((crop.left + crop.width) * scale)
    return Crop(top, left, max(1, bottom - top), max(1, right - left))
