"""What the tags of a TIFF may ask of its readers: a few kB of them may ask for gigabytes.  Torch-free."""

import struct
from collections.abc import Iterator

from trainer.datasets.unreadable import UnreadableError

_STARTS = tuple(order + number for order in (b"II", b"MM") for number in (b"\0*", b"*\0", b"\0+", b"+\0"))
_BIG = b"+"  # in a BigTIFF, whose places and counts take eight bytes
_SIZES = {3: 2, 4: 4, 5: 8, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}  # of a value, by type; else 1
SPARE = 2**20  # bytes of tags that may share their place with others


def check_tags(data: bytes) -> None:
    """Raises UnreadableError for tags of more bytes than the file has, and for one that is there twice.

    Older Pillows copy the bytes of each, though ten thousand may lie in one place.  And of two tags they believe the
    second, libtiff the first: what one has checked would not be what the other decodes.
    """
    if not data.startswith(_STARTS):
        return
    seen, left = set[int](), len(data) + SPARE
    for tag, size in _tags(data):
        left -= size
        if tag in seen or left < 0:
            raise UnreadableError("a TIFF with tags that cannot be true: save it anew")
        seen.add(tag)


def _tags(data: bytes) -> Iterator[tuple[int, int]]:
    """Each tag of the first image with the bytes of its value, as far as they are there."""
    order, is_big = ">" if data.startswith(b"M") else "<", _BIG in data[2:4]
    place, count, entry = (8, "Q", "HHQ8x") if is_big else (4, "H", "HHI4x")
    try:
        (first,) = struct.unpack_from(order + ("Q" if is_big else "I"), data, place)
        (tags,) = struct.unpack_from(order + count, data, first)
        first += struct.calcsize(order + count)
        for number in range(tags):
            tag, kind, values = struct.unpack_from(order + entry, data, first + number * struct.calcsize(order + entry))
            yield tag, values * _SIZES.get(kind, 1)
    except struct.error:  # cut off, which its reader says better
        return
