"""What the tags of a TIFF may ask of its readers: a few kB of them may ask for gigabytes.  Torch-free."""

import struct
from collections.abc import Iterator

from trainer.datasets.unreadable import UnreadableError

_STARTS = tuple(order + number for order in (b"II", b"MM") for number in (b"\0*", b"*\0", b"\0+", b"+\0"))
_BIG = b"+"  # in a BigTIFF, whose places and counts take eight bytes
_SIZES = {3: 2, 4: 4, 5: 8, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}  # of a value, by type; else 1
SPARE = 2**20  # bytes of tags that may share their place with others
_FURTHER = (34665, 34853, 40965)  # Exif, GPS, Interoperability: tags whose value is the place of more tags
_PLACES = {4: "I", 13: "I"}  # the types that such a value has; and those of a BigTIFF alone
_BIG_PLACES = {16: "Q", 18: "Q"}
_DEEPEST = 2  # the last of them is within the first
_REFUSED = "a TIFF with tags that cannot be true: save it anew"


def check_tags(data: bytes) -> None:
    """Raises UnreadableError for tags of more bytes than the file has, and for one that is there twice.

    Older Pillows copy the bytes of each, though ten thousand may lie in one place, and as they decode the image also
    those of the tags that it leads to.  And of two tags they believe the second, libtiff the first: what one has
    checked would not be what the other decodes.
    """
    if not data.startswith(_STARTS):
        return
    tags, left = _Tags(data), len(data) + SPARE
    waiting = [(tags.first(), 0)]
    while waiting:
        place, depth = waiting.pop()
        seen = set[int]()
        for tag, size, further in tags.at(place):
            left -= size
            if left < 0 or (tag in seen and not depth):
                raise UnreadableError(_REFUSED)
            seen.add(tag)
            if further and depth < _DEEPEST:
                waiting.append((further, depth + 1))


class _Tags:
    """The tags of a TIFF, by where their list begins."""

    def __init__(self, data: bytes) -> None:
        self._data, self._order, self._is_big = data, ">" if data.startswith(b"M") else "<", _BIG in data[2:4]
        self._kinds = {**_PLACES, **_BIG_PLACES} if self._is_big else _PLACES

    def first(self) -> int:
        """Where those of the first image begin; where nothing is, if the file is cut off."""
        try:
            return self._number(*((8, "Q") if self._is_big else (4, "I")))
        except struct.error:
            return len(self._data)

    def at(self, place: int) -> Iterator[tuple[int, int, int]]:
        """Each tag with its bytes and its value's, and the place of further tags or 0, as far as they are there."""
        count, entry = (self._order + form for form in (("Q", "HHQ8x") if self._is_big else ("H", "HHI4x")))
        step = struct.calcsize(entry)
        try:
            begin = place + struct.calcsize(count)
            for at in range(begin, begin + step * self._number(place, count[1:]), step):
                tag, kind, values = struct.unpack_from(entry, self._data, at)
                further = self._further(kind, values, at) if tag in _FURTHER else 0
                yield tag, values * _SIZES.get(kind, 1) + step, further
        except (struct.error, OverflowError):  # cut off, which its reader says better
            return

    def _further(self, kind: int, values: int, at: int) -> int:
        if kind not in self._kinds or values != 1:  # of which every reader might make something else
            raise UnreadableError(_REFUSED)
        return self._number(at + (12 if self._is_big else 8), self._kinds[kind])

    def _number(self, place: int, form: str) -> int:
        (number,) = struct.unpack_from(self._order + form, self._data, place)
        return int(number)
