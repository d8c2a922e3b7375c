"""From the bytes of an image file to pixels: simplejpeg for JPEGs, Pillow for the other FORMATS.

Both release the GIL while they work, so threads suffice.
"""

import io
import math
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import simplejpeg
from PIL import Image, UnidentifiedImageError

from trainer.datasets.crops import Crop
from trainer.datasets.resize import Pixels as Pixels
from trainer.datasets.resize import resized
from trainer.datasets.unreadable import UnreadableError
from trainer.errors import one_line
from trainer.files import read_regular

# Decoding to 1/2, 1/4 or 1/8 saves time; to 7/8 or 3/4 costs more than it saves.
WORTHWHILE = 2.0
# A quarter of a GiB once it is decoded, and what Pillow, too, takes for an attack.
LARGEST_PIXELS = 2**28 // 3
WHITE_OR_BLACK_IS_ZERO = 262  # the TIFF tag PhotometricInterpretation: 0 if white is
TOO_LARGE = f"more than {LARGEST_PIXELS:,} pixels: shrink it"
LARGEST_BYTES = 2**30  # of a file
# Not all that Pillow knows: for some, such as EPS, it starts another program.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP")


def read_crop(path: Path, choose: Callable[[int, int], Crop], size: int) -> Pixels:
    """`crop` of what a file holds.  Raises UnreadableError."""
    try:
        data = read_regular(path, LARGEST_BYTES)
    except Exception as error:
        raise _unreadable(error) from error
    return crop(data, choose, size)


def crop(data: bytes, choose: Callable[[int, int], Crop], size: int) -> Pixels:
    """(size, size, 3) uint8: the crop that `choose(height, width)` picks, resized.  Raises UnreadableError."""
    try:
        return _cropped(data, choose, size)
    except Exception as error:  # Fed with garbage, decoders raise anything: struct.error, SyntaxError, zlib.error, ...
        raise _unreadable(error) from error


def image_sides(path: Path) -> tuple[int, int]:
    """`sides_of` what a file holds.  Raises UnreadableError."""
    try:
        data = read_regular(path, LARGEST_BYTES)
    except Exception as error:
        raise _unreadable(error) from error
    return sides_of(data)


def sides_of(data: bytes) -> tuple[int, int]:
    """Width and height from the header.  Raises UnreadableError."""
    try:
        with _opened(data) as image:
            return image.size
    except Exception as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> UnreadableError:
    """The reason in a few words."""
    if isinstance(error, UnreadableError):
        return error
    if isinstance(error, Image.DecompressionBombError):  # many times too large
        return UnreadableError(TOO_LARGE)
    if isinstance(error, UnidentifiedImageError):  # its text has an address in memory
        return UnreadableError("not an image")
    reason = error.strerror if isinstance(error, OSError) else None
    return UnreadableError(one_line(reason or error or type(error).__name__))


def _cropped(data: bytes, choose: Callable[[int, int], Crop], size: int) -> Pixels:
    shape = _jpeg_shape(data)
    if shape is None:
        pixels = _decoded(data)
        return _resized(pixels, choose(*pixels.shape[:2]), size)
    height, width = shape
    _refuse_huge(height, width)
    part = choose(height, width)
    pixels = simplejpeg.decode_jpeg(
        data,
        min_height=math.ceil(height * size / part.height),
        min_width=math.ceil(width * size / part.width),
        min_factor=WORTHWHILE,
    )
    return _resized(pixels, _shrunk(part, height, pixels.shape[0]), size)


def _decoded(data: bytes) -> Pixels:
    """(H, W, 3) of any of the FORMATS."""
    with _opened(data) as image:
        _refuse_huge(*image.size)
        return np.asarray(_in_eight_bits(image).convert("RGB"))


def _opened(data: bytes) -> Image.Image:
    if not data:
        raise UnreadableError("empty")
    _silence_warning_of_size()
    return Image.open(io.BytesIO(data), formats=FORMATS)


@cache
def _silence_warning_of_size() -> None:
    """Silences Pillow's warning of many pixels: _refuse_huge has a limit and a remedy."""
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


def _refuse_huge(*sides: int) -> None:
    """Raises UnreadableError before an image is decoded that would take too much memory."""
    if math.prod(sides) > LARGEST_PIXELS:
        raise UnreadableError(TOO_LARGE)


def _in_eight_bits(image: Image.Image) -> Image.Image:
    """16-bit greys scaled, which convert() would cut off at 255.  Raises UnreadableError for an unknown range."""
    if image.mode == "F" or (image.mode == "I" and image.format not in ("PNG", "PPM")):
        raise UnreadableError("pixels of 32 bits, whose brightest value is unknown: save it with 8 or 16")
    if image.mode.startswith("I"):
        grey = ((np.asarray(image).astype(np.uint32) + 128) // 257).astype(np.uint8)
        has_white_as_zero = getattr(image, "tag_v2", {}).get(WHITE_OR_BLACK_IS_ZERO) == 0
        return Image.fromarray(255 - grey if has_white_as_zero else grey)
    return image


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


def _resized(pixels: Pixels, part: Crop, size: int) -> Pixels:
    return resized(pixels[part.top : part.top + part.height, part.left : part.left + part.width], size)
