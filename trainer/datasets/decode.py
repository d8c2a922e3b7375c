"""From the bytes of an image file to pixels: simplejpeg for JPEGs, Pillow for the other FORMATS.

Both release the GIL while they work, so threads suffice.
"""

import math
from collections.abc import Callable
from pathlib import Path

import simplejpeg

from trainer.datasets.crops import Crop
from trainer.datasets.encoded import LARGEST_BYTES, because, decoded, jpeg_shape, refuse_huge
from trainer.datasets.resize import Pixels as Pixels
from trainer.datasets.resize import resized
from trainer.files import read_regular

# Decoding to 1/2, 1/4 or 1/8 saves time; to 7/8 or 3/4 costs more than it saves.
WORTHWHILE = 2.0


def read_crop(path: Path, choose: Callable[[int, int], Crop], size: int) -> Pixels:
    """`crop` of what a file holds.  Raises UnreadableError."""
    try:
        data = read_regular(path, LARGEST_BYTES)
    except Exception as error:
        raise because(error) from error
    return crop(data, choose, size)


def crop(data: bytes, choose: Callable[[int, int], Crop], size: int) -> Pixels:
    """(size, size, 3) uint8: the crop that `choose(height, width)` picks, resized.  Raises UnreadableError."""
    try:
        return _cropped(data, choose, size)
    except Exception as error:  # Fed with garbage, decoders raise anything: struct.error, SyntaxError, zlib.error, ...
        raise because(error) from error


def _cropped(data: bytes, choose: Callable[[int, int], Crop], size: int) -> Pixels:
    shape = jpeg_shape(data)
    if shape is None:
        pixels = decoded(data)
        return _resized(pixels, choose(*pixels.shape[:2]), size)
    height, width = shape
    refuse_huge(height, width)
    part = choose(height, width)
    pixels = simplejpeg.decode_jpeg(
        data,
        min_height=math.ceil(height * size / part.height),
        min_width=math.ceil(width * size / part.width),
        min_factor=WORTHWHILE,
    )
    return _resized(pixels, _shrunk(part, height, pixels.shape[0]), size)


def _shrunk(crop: Crop, height: int, decoded_height: int) -> Crop:
    """The same crop in an image that was decoded smaller: to some eighths, rounded up, of which its height tells."""
    if decoded_height == height:
        return crop
    scale = max(1, round(8 * decoded_height / height)) / 8
    top, left = round(crop.top * scale), round(crop.left * scale)
    bottom, right = round((crop.top + crop.height) * scale), round((crop.left + crop.width) * scale)
    return Crop(top, left, max(1, bottom - top), max(1, right - left))


def _resized(pixels: Pixels, part: Crop, size: int) -> Pixels:
    return resized(pixels[part.top : part.top + part.height, part.left : part.left + part.width], size)
