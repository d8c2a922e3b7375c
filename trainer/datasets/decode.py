"""From the bytes of an image file to pixels: simplejpeg for JPEGs, Pillow for everything else.

Both release the GIL while they work, so threads suffice.
"""

import io
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from trainer.datasets.crops import Crop
from trainer.datasets.unreadable import UnreadableError

Pixels = NDArray[np.uint8]
# Decoding to 1/2, 1/4 or 1/8 saves time; to 7/8 or 3/4 costs more than it saves.
WORTHWHILE = 2.0


def read_crop(path: Path, choose: Callable[[int, int], Crop], size: int) -> Pixels:
    """(size, size, 3) uint8: the crop that `choose(height, width)` picks, resized.  Raises UnreadableError."""
    try:
        return _cropped(path.read_bytes(), choose, size)
    except Exception as error:  # Fed with garbage, decoders raise anything: struct.error, SyntaxError, zlib.error, ...
        raise UnreadableError(f"{path}: {error}") from error


def image_sides(path: Path) -> tuple[int, int]:
    """Width and height from the header alone.  Raises UnreadableError."""
    try:
        with Image.open(path) as image:
            return image.size
    except Exception as error:
        raise UnreadableError(f"{path}: {error}") from error


def _cropped(data: bytes, choose: Callable[[int, int], Crop], size: int) -> Pixels:
    shape = _jpeg_shape(data)
    if shape is None:
        pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        return _resized(pixels, choose(*pixels.shape[:2]), size)
    height, width = shape
    crop = choose(height, width)
    pixels = simplejpeg.decode_jpeg(
        data,
        min_height=math.ceil(height * size / crop.height),
        min_width=math.ceil(width * size / crop.width),
        min_factor=WORTHWHILE,
    )
    return _resized(pixels, _shrunk(crop, height, pixels.shape[0]), size)


def _jpeg_shape(data: bytes) -> tuple[int, int] | None:
    """(height, width) of a JPEG, else None."""
    try:
        height, width, _, _ = simplejpeg.decode_jpeg_header(data)
    except ValueError:  # ImageNet has a PNG named .JPEG, for one.
        return None
    return height, width


def _shrunk(crop: Crop, height: int, decoded_height: int) -> Crop:
    """The same crop in an image that was decoded smaller."""
    if decoded_height == height:
        return crop
    scale = decoded_height / height
    return Crop(*(int(side * scale) for side in crop))


def _resized(pixels: Pixels, crop: Crop, size: int) -> Pixels:
    part = pixels[crop.top : crop.top + crop.height, crop.left : crop.left + crop.width]
    if part.shape[:2] == (size, size):
        return part
    image = Image.fromarray(part).resize((size, size), Image.Resampling.BILINEAR, reducing_gap=2.0)
    return np.asarray(image)
