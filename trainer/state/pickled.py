"""What may be in a pickled file of tensors before torch reads it, and in what it has read.

torch's weights_only keeps a file from running anything, and not from taking gigabytes or hours: its zip may be
compressed, the same tuple may stand twice in another, which stands twice in a third, and so on, a list of which an
error is to say something may have the same megabyte of text a million times, and a tensor of a million numbers may be
one number, shown a million times.
"""

import io
import struct
import zipfile
from collections.abc import Collection
from typing import Any

from torch import Tensor

from trainer.pickles import MOST_VALUES, check_tuples

MOST_TEXT = 2**24  # letters and digits beyond those of the file, each text counted as often as it stands there
MOST_SHOWN = 16  # times the bytes of the file: weights that a model shares count for each name
_ZIP, _ZIP64, _ZIP_END = b"PK\x03\x04", b"PK\x06\x07", b"PK\x05\x06"
_END, _LOCATOR, _END64 = 22, 20, 56  # bytes of the records at the end of a zip
_PICKLES = 5  # in a row, where there is no zip: torch wrote them until 1.5


def check_file(data: bytes) -> None:
    """Raises ValueError for a file that is larger than it looks; zipfile's and pickletools' errors for garbage."""
    if not data.startswith(_ZIP):
        stream = io.BytesIO(data)
        for _ in range(_PICKLES):
            check_tuples(stream)
        return
    _check_one_directory(data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = archive.infolist()
        if any(file.compress_type != zipfile.ZIP_STORED for file in files):
            raise ValueError("its files are compressed, as torch writes none")
        if sum(file.file_size for file in files) > len(data):
            raise ValueError("its files overlap")
        for file in files:
            if file.orig_filename.lower().endswith("data.pkl"):  # as torch finds it
                check_tuples(io.BytesIO(archive.read(file)))


def _check_one_directory(data: bytes) -> None:
    """Raises ValueError where zipfile would read another directory than torch: its end is where torch writes it."""
    end = len(data) - _END
    if data[end : end + 4] != _ZIP_END or data[-2:] != bytes(2):
        raise ValueError("its zip does not end as torch's")
    size, begin = struct.unpack_from("<II", data, end + 12)
    if data[end - _LOCATOR : end - _LOCATOR + 4] == _ZIP64:
        (place,) = struct.unpack_from("<Q", data, end - _LOCATOR + 8)
        end -= _LOCATOR + _END64
        if place != end:
            raise ValueError("its zip has two ends")
        size, begin = struct.unpack_from("<QQ", data, end + 40)
    if begin + size != end:
        raise ValueError("its zip has two directories")


def check_values(tree: Any, size: int) -> None:
    """Raises ValueError for more values or text, or tensors of more bytes, than a file of `size` bytes holds.

    What goes over all of them, and counts each as often as it stands there, would take for ever.
    """
    left, text, room, todo = MOST_VALUES, MOST_TEXT + size, MOST_SHOWN * size, [tree]
    while todo:
        value = todo.pop()
        within = _within(value)
        if isinstance(value, Tensor):
            room -= value.numel() * value.element_size()
        text -= _letters(value)
        left -= len(within)
        if min(left, text, room) < 0:
            raise ValueError("values that stand in each other too often, or tensors larger than their file")
        todo += within


def _within(value: Any) -> Collection[Any]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return value if isinstance(value, (list, tuple, set, frozenset)) else ()


def _letters(value: Any) -> int:
    """How long a text is, or a number of more than 64 bits; what is shown of others is short."""
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    return value.bit_length() // 3 if isinstance(value, int) and value.bit_length() > 64 else 0
