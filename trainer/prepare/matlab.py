"""A table in a MAT-file, as MATLAB 5 to 7 save one: what ILSVRC's devkit has its classes in.

SciPy's reader takes a stranger's word for sizes: 200 bytes were gigabytes of blanks.  The layout:
https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf
"""

import math
import struct
import zlib
from collections.abc import Iterator, Sequence

HEADER = 128  # bytes, the last two of which tell the order of bytes
LARGEST = 2**24  # bytes, unpacked; the devkit's has a million or so
LONGEST_SIDES = 256  # bytes of the sides of a table, which has two: a product of millions would take a day
MATRIX, PACKED = 14, 15  # types of elements
_NUMBERS = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 9: "d", 12: "q", 13: "Q"}
_CHARACTERS = {1: "latin1", 2: "latin1", 4: "utf-16-", 16: "utf-8", 17: "utf-16-"}
_TEXT, _STRUCT = 4, 2  # classes of matrices

Cell = str | float | None
Part = tuple[int, bytes]  # the type and the bytes of an element


def read_table(data: bytes, name: str, columns: Sequence[int]) -> list[list[Cell]]:
    """Of each row of the struct array `name`, its fields at `columns`: text, a first number, or None for others.

    Raises ValueError, LookupError, ArithmeticError, zlib.error and struct.error for garbage.
    """
    if len(data) > LARGEST:
        raise ValueError(f"more than {LARGEST:,} bytes")
    order = {b"IM": "<", b"MI": ">"}[data[HEADER - 2 : HEADER]]
    for parts in _matrices(data[HEADER:], order):
        if len(parts) > 4 and _class(parts, order) == _STRUCT and parts[2][1] == name.encode():
            return _rows(parts, columns, order)
    raise KeyError(name)


def _matrices(data: bytes, order: str) -> Iterator[list[Part]]:
    """The parts of each matrix: its flags, sides and name, and then what it holds."""
    left = LARGEST  # of all that are packed: each of a thousand takes a second
    for kind, content in _elements(data, order):
        if kind == PACKED:
            unpacked = _unpacked(content, left)
            left -= len(unpacked)
            kind, content = next(_elements(unpacked, order), (0, b""))
        if kind == MATRIX:
            yield list(_elements(content, order))


def _class(parts: Sequence[Part], order: str) -> int:
    return parts[0][1][0 if order == "<" else 3]


def _rows(parts: Sequence[Part], columns: Sequence[int], order: str) -> list[list[Cell]]:
    """Behind the name: how long a field's name is, the names, and the fields, row by row."""
    (length,) = struct.unpack(f"{order}i", parts[3][1])
    fields, cells = len(parts[4][1]) // length, parts[5:]
    if len(parts[1][1]) > LONGEST_SIDES:
        raise ValueError("too many sides")
    if math.prod(_numbers(*parts[1], order)) * fields != len(cells):
        raise ValueError("cut off")
    return [[_cell(cells[row + column][1], order) for column in columns] for row in range(0, len(cells), fields)]


def _unpacked(data: bytes, most: int) -> bytes:
    content = zlib.decompressobj().decompress(data, most + 1)
    if len(content) > most:
        raise ValueError(f"more than {LARGEST:,} bytes")
    return content


def _elements(data: bytes, order: str) -> Iterator[Part]:
    """Each of them, up to the end."""
    place = 0
    while place + 8 <= len(data):
        kind, size = struct.unpack_from(f"{order}II", data, place)
        begin = place + 8
        if kind >> 16:  # at most four bytes, which lie in the place of the size
            kind, size, begin = kind & 0xFFFF, kind >> 16, place + 4
        end = begin + size
        if end > len(data):
            raise ValueError("cut off")
        yield kind, data[begin:end]
        place = end if kind == PACKED else place + 8 if begin == place + 4 else end + -size % 8


def _cell(matrix: bytes, order: str) -> Cell:
    parts = list(_elements(matrix, order))
    if len(parts) != 4 or not parts[3][1]:  # a matrix of others, or an empty one
        return None
    kind, content = parts[3]
    if _class(parts, order) == _TEXT:
        code = _CHARACTERS[kind]
        return content.decode(code + {"<": "le", ">": "be"}[order] if code.endswith("-") else code)
    return _numbers(kind, content, order)[0]


def _numbers(kind: int, content: bytes, order: str) -> tuple[float, ...]:
    letter = _NUMBERS[kind]
    return struct.unpack(f"{order}{len(content) // struct.calcsize(letter)}{letter}", content)
