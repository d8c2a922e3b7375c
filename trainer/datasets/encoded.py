"""Inspect and decode image files.  Imports no torch, which trainer.prepare's workers do not need.

simplejpeg reads JPEGs; Pillow reads the other FORMATS, and JPEGs that simplejpeg refuses, such as those with padding
before their end, for which libjpeg only warns.  Pillow's size limits apply.  Both release the GIL.
"""

import io
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import cache

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from trainer.errors import DataError, one_line

Pixels = NDArray[np.uint8]
WHITE_OR_BLACK_IS_ZERO = 262  # the TIFF tag PhotometricInterpretation: 0 if white is zero
SHOWN = 5  # how many unreadable images an error names
# Not all of Pillow's formats: for some, such as EPS, it starts another program.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP", "AVIF", "JPEG2000")


class UnreadableError(Exception):
    """A file is not a usable image; the text gives the reason in a few words."""


def decode_image(data: bytes) -> Pixels:
    """(H, W, 3) uint8: the whole image at full size.  Raises UnreadableError."""
    try:
        if jpeg_shape(data):
            with suppress(ValueError):  # also raised for libjpeg's warnings; Pillow may still read the file
                pixels: Pixels = simplejpeg.decode_jpeg(data)
                return pixels
        return decoded(data)
    except Exception as error:
        raise as_unreadable(error) from error


def format_of(data: bytes) -> str:
    """The image format, one of FORMATS, determined from the content.  Raises UnreadableError."""
    try:
        with _opened(data) as image:
            kind = image.format or ""
            return kind if kind in FORMATS else "JPEG"  # MPO: a JPEG followed by more JPEGs
    except Exception as error:
        raise as_unreadable(error) from error


def sides_of(data: bytes) -> tuple[int, int]:
    """(width, height) from the header.  Raises UnreadableError."""
    try:
        with _opened(data) as image:
            return image.size
    except Exception as error:
        raise as_unreadable(error) from error


def as_unreadable(error: Exception) -> UnreadableError:
    """An UnreadableError with the reason for an error of a reader or decoder in a few words."""
    if isinstance(error, UnreadableError):
        return error
    if isinstance(error, Image.DecompressionBombError) and Image.MAX_IMAGE_PIXELS:
        return UnreadableError(f"more than {2 * Image.MAX_IMAGE_PIXELS:,} pixels: shrink it")
    # An UnidentifiedImageError's text contains a memory address; older Pillows raise KeyError for missing FORMATS.
    if isinstance(error, (UnidentifiedImageError, KeyError)):
        return UnreadableError("not an image")
    reason = error.strerror if isinstance(error, OSError) else None
    return UnreadableError(one_line(reason or error or type(error).__name__))


def decoded(data: bytes) -> Pixels:
    """(H, W, 3) uint8, decoded by Pillow."""
    with _opened(data) as image:
        return np.asarray(_in_eight_bits(image).convert("RGB"))


def _opened(data: bytes) -> Image.Image:
    if not data:
        raise UnreadableError("empty")
    _silence_warnings()
    return Image.open(io.BytesIO(data), formats=FORMATS)


@cache
def _silence_warnings() -> None:
    """Silence Pillow's warnings, of which one TIFF may cause thousands."""
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    warnings.filterwarnings("ignore", module=r"PIL\.")


def _in_eight_bits(image: Image.Image) -> Image.Image:
    """Scale 16-bit greys, which convert() would clip at 255.  Raises UnreadableError if the range is unknown."""
    if image.mode == "F" or (image.mode == "I" and image.format not in ("PNG", "PPM")):
        raise UnreadableError("pixels of 32 bits, whose brightest value is unknown: save it with 8 or 16")
    if image.mode.startswith("I"):
        grey = ((np.asarray(image).astype(np.uint32) + 128) // 257).astype(np.uint8)
        has_white_as_zero = getattr(image, "tag_v2", {}).get(WHITE_OR_BLACK_IS_ZERO) == 0
        return Image.fromarray(255 - grey if has_white_as_zero else grey)
    return image


def jpeg_shape(data: bytes) -> tuple[int, int] | None:
    """(height, width) of a JPEG that simplejpeg can read and that is within Pillow's size limit, else None."""
    shape, _ = _jpeg_head(data)
    return shape


def colour_jpeg_shape(data: bytes) -> tuple[int, int] | None:
    """As jpeg_shape(), but None unless the JPEG is in YCbCr, as most are."""
    shape, colours = _jpeg_head(data)
    return shape if colours == "YCbCr" else None


def _jpeg_head(data: bytes) -> tuple[tuple[int, int] | None, str]:
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
    except ValueError:  # for example, ImageNet has a PNG named .JPEG
        return None, ""
    is_huge = Image.MAX_IMAGE_PIXELS is not None and height * width > Image.MAX_IMAGE_PIXELS
    return None if is_huge else (height, width), colours


def refuse_none_readable(readable: float, part: str) -> None:
    """Raise DataError if no image of `part`, such as "an epoch of training", could be read."""
    if not readable:
        raise DataError(f"no image of {part} could be read; lower --max-bad-images to see which, and why.")


def refuse_too_many(bad: Mapping[str, str], limit: int) -> None:
    """Raise DataError with the first names and reasons in `bad` if there are more than `limit`."""
    if len(bad) <= limit:
        return
    shown = ", ".join(f"{name} ({reason})" for name, reason in [*bad.items()][:SHOWN])
    shown += ", ..." if len(bad) > SHOWN else ""
    images = "1 image" if len(bad) == 1 else f"{len(bad)} images"
    raise DataError(
        f"{images} could not be read ({limit} allowed): {shown}; "
        f"replace or delete them, or skip them with --max-bad-images {len(bad)}."
    )
