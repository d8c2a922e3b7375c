"""How often a decoder of JPEGs goes over an image: a hundred bytes may ask for it once more.  Torch-free."""

SOI, SCAN = b"\xff\xd8", b"\xff\xda"
_BASELINE = (0xC0, 0xC1)  # frames that one scan can hold, as cameras write them
# Before the first scan: tables, comments, applications' own.
_TABLES = frozenset((0xC4, 0xDB, 0xDD, 0xFE, *range(0xE0, 0xF0)))


def scans(data: bytes) -> int:
    """At most how many scans a JPEG has; 0 for anything else.

    Of a usual one only the head is read, as a search through all of it would take a tenth of its decoding.
    """
    if not data.startswith(SOI):
        return 0
    return 1 if _is_usual(data) else data.count(SCAN)


def _is_usual(data: bytes) -> bool:
    """Whether the first scan has all colours of a frame that is not progressive: then no other one is read."""
    place, colours, last = len(SOI), 0, len(data) - 10
    while place <= last and data[place] == 0xFF:
        kind = data[place + 1]
        if kind == SCAN[1]:
            return colours > 0 and data[place + 4] == colours
        if kind in _BASELINE:
            colours = data[place + 9]
        elif kind not in _TABLES:
            return False
        place += 2 + (data[place + 2] << 8 | data[place + 3])
    return False
