"""What may be in a pickled file of tensors before torch reads it, and in what it has read.

torch's weights_only keeps a file from running anything, and not from taking gigabytes or hours: its zip may be
compressed, the same tuple may stand twice in another, which stands twice in a third, and so on, and a tensor of a
million numbers may be one number, shown a million times.
"""

import io
import pickletools  # nosec B403  # which only lists the steps of a pickle
import struct
import zipfile
from collections.abc import Collection, Iterator
from typing import IO, Any

from torch import Tensor

MOST_VALUES = 2**22  # in all, and in one that is part of others; a large model's state has a hundred thousand
MOST_SHOWN = 16  # times the bytes of the file: weights that a model shares count for each name
_ZIP, _ZIP64, _ZIP_END = b"PK\x03\x04", b"PK\x06\x07", b"PK\x05\x06"
_END, _LOCATOR, _END64 = 22, 20, 56  # bytes of the records at the end of a zip
_PICKLES = 5  # in a row, where there is no zip: torch wrote them until 1.5
_GETS, _PUTS = ("GET", "BINGET", "LONG_BINGET"), ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE")


def check_file(data: bytes) -> None:
    """Raises ValueError for a file that is larger than it looks; zipfile's and pickletools' errors for garbage."""
    if not data.startswith(_ZIP):
        stream = io.BytesIO(data)
        for _ in range(_PICKLES):
            _check_tuples(stream)
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
                _check_tuples(io.BytesIO(archive.read(file)))


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


def _check_tuples(stream: IO[bytes]) -> None:
    """Raises ValueError for a value of more than MOST_VALUES, each counted as often as it stands there.

    Where a tuple is the key of a dictionary, Python goes over all of them.
    """
    stack, remembered = list[int | None](), dict[int, int | None]()  # values in each; None: a mark
    for step, at, _ in pickletools.genops(stream):
        if step.name in _PUTS:
            remembered[len(remembered) if at is None else int(at)] = stack[-1]
        elif step.name in _GETS:
            stack.append(remembered[int(at or 0)])
        else:
            count = 1 + sum(_taken(step, stack))
            if count > MOST_VALUES:
                raise ValueError("values that stand in each other too often")
            stack.extend(None if one is pickletools.markobject else count for one in step.stack_after)


def _taken(step: pickletools.OpcodeInfo, stack: list[int | None]) -> Iterator[int]:
    """What a step takes from the stack."""
    left = len(step.stack_before)
    if pickletools.markobject in step.stack_before:
        left -= 2  # the mark, and all that is above it
        while (top := stack.pop()) is not None:
            yield top
    for _ in range(left):
        yield stack.pop() or 0


def check_values(tree: Any, size: int) -> None:
    """Raises ValueError for more values, or tensors of more bytes, than a file of `size` bytes holds.

    What goes over all of them, and counts each as often as it stands there, would take for ever.
    """
    left, room, todo = MOST_VALUES, MOST_SHOWN * size, [tree]
    while todo:
        value = todo.pop()
        within: Collection[Any] = ()
        if isinstance(value, Tensor):
            room -= value.numel() * value.element_size()
        elif isinstance(value, dict):
            within = value.values()
        elif isinstance(value, (list, tuple, set)):
            within = value
        left -= len(within)
        if left < 0 or room < 0:
            raise ValueError("values that stand in each other too often, or tensors larger than their file")
        todo += within
