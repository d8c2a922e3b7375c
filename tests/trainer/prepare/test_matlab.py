"""The table of ILSVRC's devkit: read as SciPy reads it, and no more of it than it has."""

import io
import random
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from trainer.prepare import matlab
from trainer.prepare.ilsvrc import _synsets
from trainer.prepare.matlab import read_table

COLUMNS = ("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children", "children", "wordnet_height", "num_train_images")
HEADER = b"MATLAB 5.0 MAT-file".ljust(124) + b"\0\1IM"


def devkit(number: type = np.uint8, shape: tuple[int, ...] = (-1,), **options: Any) -> bytes:
    rows = [
        (number(n), f"n{n:08d}", "tench, Tinca tinca — fish", "gloss" * n, number(n % 3), np.arange(n % 4), 3, 1300)
        for n in range(1, 60)
    ]
    table = np.array(rows, dtype=[(name, object) for name in COLUMNS]).reshape(shape)
    savemat(file := io.BytesIO(), {"others": np.eye(3), "synsets": table}, **options)
    return file.getvalue()


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("shape", [(-1,), (-1, 1), (1, -1)])
@pytest.mark.parametrize("number", [np.uint8, np.int16, np.float64])
def test_a_table_has_the_rows_that_scipy_reads(number: type, shape: tuple[int, ...], is_packed: bool) -> None:
    data = devkit(number, shape, do_compression=is_packed)

    expected = [[row[0], row[1], row[2], row[4]] for row in loadmat(io.BytesIO(data), squeeze_me=True)["synsets"]]
    assert read_table(data, "synsets", (0, 1, 2, 4)) == expected


def element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def matrix(of: int, sides: tuple[int, int], *parts: bytes) -> bytes:
    head = element(6, struct.pack("<II", of, 0)) + element(5, struct.pack("<ii", *sides)) + element(1, b"synsets")
    return element(14, head + b"".join(parts))


@pytest.mark.parametrize(
    "content",
    [
        matrix(4, (1, 2**31 - 1), element(4, b"")),  # of which SciPy makes so many blanks
        matrix(2, (2**31 - 1, 2**31 - 1), element(5, struct.pack("<i", 8)), element(1, b"a".ljust(8, b"\0"))),
        matrix(2, (1, 1), element(5, bytes(4)), element(1, b"a")),
        element(matlab.PACKED, zlib.compress(bytes(2**25))),
        element(matlab.PACKED, zlib.compress(b"")),
        bytes(2**25),
    ],
    ids=["blanks", "rows", "no length", "packed", "empty", "long"],
)
def test_no_size_is_believed(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"meta\.mat: "):
        _synsets(HEADER + content)


@pytest.mark.timeout(10)
def test_no_table_has_a_million_sides() -> None:
    """Their product would take minutes, and that of as many as fit a day."""
    head = element(6, struct.pack("<II", 2, 0)) + element(2, b"\xff" * 2**20) + element(1, b"synsets")
    fields = element(5, struct.pack("<i", 8)) + element(1, b"a".ljust(8, b"\0"))

    with pytest.raises(ValueError, match="too many sides"):
        read_table(HEADER + element(14, head + fields), "synsets", (0,))


def test_tables_that_are_packed_are_together_no_longer_than_one() -> None:
    """Each of 16 MB took a second, and 16 kB; a thousand of them fit into a devkit of a few kB."""
    content = zlib.compress(matrix(1, (0, 0), element(2, bytes(2**23))))
    packed = struct.pack("<II", matlab.PACKED, len(content)) + content
    with pytest.raises(KeyError, match="synsets"):
        read_table(HEADER + packed, "synsets", (0,))

    with pytest.raises(ValueError, match="more than 16,777,216 bytes"):
        read_table(HEADER + packed * 3, "synsets", (0,))


def test_any_bytes_are_a_table_or_a_sentence() -> None:
    whole, rng, reasons = devkit(), random.Random(0), list[str]()
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(3):
            data[rng.randrange(100, len(data))] = rng.randrange(256)
        try:
            _synsets(bytes(data[: rng.randrange(1, 2 * len(data))]))
        except ValueError as error:
            reasons.append(str(error))
    assert len(reasons) > 50
    assert all(reason.startswith("data/meta.mat: ") for reason in reasons)
