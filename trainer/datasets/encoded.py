"""What the bytes of an image file say, and all of its pixels.  Torch-free: trainer.prepare's workers need no torch.

simplejpeg reads JPEGs, Pillow the other FORMATS.  Both release the GIL while they work.
"""

import io
import math
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from trainer.datasets.scans import SOI, scans
from trainer.datasets.tiff import check_tags
from trainer.datasets.unreadable import UnreadableError
from trainer.errors import one_line
from trainer.files import read_regular

Pixels = NDArray[np.uint8]
# A quarter of a GiB once it is decoded, and what Pillow, too, takes for an attack.
LARGEST_PIXELS = 2**28 // 3
MOST_PASSES = 100 * LARGEST_PIXELS  # over pixels, by all scans of a JPEG; encoders make about ten scans
TILE_SIDES = (322, 323)  # TIFF's tags TileWidth and TileLength
WHITE_OR_BLACK_IS_ZERO = 262  # the TIFF tag PhotometricInterpretation: 0 if white is
TOO_LARGE = f"more than {LARGEST_PIXELS:,} pixels: shrink it"
LARGEST_BYTES = 2**30  # of a file
MOST_READS = 50_000  # until an image is open: its head takes a hundred or so
MOST_COMMENTS = 1000  # of a PPM in plain text
PNG, PROFILE, MOST_PROFILES = b"\x89PNG", b"iCCP", 100  # of a PNG, which has one
# What parts of a JPEG begin with that hold tags as a TIFF's: Pillow would look there for dots per inch, and for images
# behind the first.
TAGS_OF_A_JPEG = (b"Exif\0", b"MPF\0")
# Not all that Pillow knows: for some, such as EPS, it starts another program.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP")


def image_sides(path: Path) -> tuple[int, int]:
    """`sides_of` what a file holds.  Raises UnreadableError."""
    try:
        data = read_regular(path, LARGEST_BYTES)
    except Exception as error:
        raise because(error) from error
    return sides_of(data)


def whole(data: bytes) -> Pixels:
    """(H, W, 3) uint8: the whole image, as large as it is.  Raises UnreadableError."""
    try:
        shape = jpeg_shape(data)
        if shape is None:
            return decoded(data)
        refuse_costly(data, *shape)
        pixels: Pixels = simplejpeg.decode_jpeg(data)
        return pixels
    except Exception as error:
        raise because(error) from error


def format_of(data: bytes) -> str:
    """One of FORMATS, by the content.  Raises UnreadableError."""
    try:
        with _opened(data) as image:
            kind = image.format or ""
            return kind if kind in FORMATS else "JPEG"  # MPO: a JPEG with more of them behind it
    except Exception as error:
        raise because(error) from error


def sides_of(data: bytes) -> tuple[int, int]:
    """Width and height from the header.  Raises UnreadableError."""
    try:
        with _opened(data) as image:
            return image.size
    except Exception as error:
        raise because(error) from error


def because(error: Exception) -> UnreadableError:
    """The error of an image, with the reason for what a reader or decoder raised in a few words."""
    if isinstance(error, UnreadableError):
        return error
    if isinstance(error, Image.DecompressionBombError):  # many times too large
        return UnreadableError(TOO_LARGE)
    if isinstance(error, UnidentifiedImageError):  # its text has an address in memory
        return UnreadableError("not an image")
    reason = error.strerror if isinstance(error, OSError) else None
    return UnreadableError(one_line(reason or error or type(error).__name__))


def decoded(data: bytes) -> Pixels:
    """(H, W, 3) of any of the FORMATS."""
    with _opened(data) as image:
        refuse_costly(data, *image.size)
        _refuse_margins(image)
        return np.asarray(_in_eight_bits(image).convert("RGB"))


def _refuse_margins(image: Image.Image) -> None:
    """As refuse_huge, for what is decoded beyond an image: tiles are whole, and a gap in a BMP may be 255 rows long."""
    tags = getattr(image, "tag_v2", {})
    tile = [tags.get(tag, 1) for tag in TILE_SIDES]
    refuse_huge(*(math.ceil(side / of_tile) * of_tile for side, of_tile in zip(image.size, tile, strict=True)))
    if any(part[0] == "bmp_rle" for part in getattr(image, "tile", ())):
        refuse_huge(256, image.width)


class _File(io.BytesIO):
    """The bytes of an image, of which a head that never ends is not read to its end, and a JPEG's tags not at all.

    Older Pillows copy what they have of a GIF's comment for each 255 bytes of it: of a hundred megabytes for an hour.
    And of 66 kB of tags that share one place they make 3.5 GB.
    """

    left: float = MOST_READS
    hidden: tuple[bytes, ...] = ()  # what parts begin with that are not to be understood

    def read(self, size: int | None = -1, /) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise UnreadableError("too much before its pixels: save it anew")
        data = super().read(size)
        return b"none" + data[4:] if data.startswith(self.hidden) else data  # Pillow reads each part on its own


def _opened(data: bytes) -> Image.Image:
    if not data:
        raise UnreadableError("empty")
    _silence_warnings()
    check_tags(data)
    if data.startswith((b"P1", b"P2", b"P3")) and data.count(b"#") > MOST_COMMENTS:  # each is a copy of what follows
        raise UnreadableError("a PPM of too many comments: save it anew")
    if data.startswith(PNG) and data.count(PROFILE) > MOST_PROFILES:  # a kB of each may unpack to a megabyte
        raise UnreadableError("a PNG of too many colour profiles: save it anew")
    file = _File(data)
    if data.startswith(SOI):  # a part of a PNG may begin so, too, and has a checksum
        file.hidden = TAGS_OF_A_JPEG
    image = Image.open(file, formats=FORMATS)
    file.left, file.hidden = math.inf, ()
    return image


@cache
def _silence_warnings() -> None:
    """Silences Pillow's warnings: refuse_huge has a limit and a remedy, and one TIFF may have a thousand odd tags."""
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    warnings.filterwarnings("ignore", module=r"PIL\.")


def refuse_huge(*sides: int) -> None:
    """Raises UnreadableError before an image is decoded that would take too much memory."""
    if math.prod(sides) > LARGEST_PIXELS:
        raise UnreadableError(TOO_LARGE)


def refuse_costly(data: bytes, height: int, width: int) -> None:
    """As refuse_huge, and for a JPEG whose decoder would go over all of its pixels again and again."""
    refuse_huge(height, width)
    if scans(data) * height * width > MOST_PASSES:
        raise UnreadableError("a JPEG of too many scans: save it anew")


def _in_eight_bits(image: Image.Image) -> Image.Image:
    """16-bit greys scaled, which convert() would cut off at 255.  Raises UnreadableError for an unknown range."""
    if image.mode == "F" or (image.mode == "I" and image.format not in ("PNG", "PPM")):
        raise UnreadableError("pixels of 32 bits, whose brightest value is unknown: save it with 8 or 16")
    if image.mode.startswith("I"):
        grey = ((np.asarray(image).astype(np.uint32) + 128) // 257).astype(np.uint8)
        has_white_as_zero = getattr(image, "tag_v2", {}).get(WHITE_OR_BLACK_IS_ZERO) == 0
        return Image.fromarray(255 - grey if has_white_as_zero else grey)
    return image


def jpeg_shape(data: bytes) -> tuple[int, int] | None:
    """(height, width) of a JPEG, else None."""
    try:
        height, width, _, _ = simplejpeg.decode_jpeg_header(data)
    except ValueError:  # ImageNet has a PNG named .JPEG, for one.
        return None
    return height, width


def colour_jpeg_shape(data: bytes) -> tuple[int, int] | None:
    """(height, width) of a JPEG of the usual kind, in YCbCr, else None.  Raises UnreadableError for a huge one."""
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
    except ValueError:
        return None
    if colours != "YCbCr":
        return None
    refuse_costly(data, height, width)
    return height, width
