"""Serialise tensors and plain values in the safetensors format, which cannot contain code.

Eight bytes with the length of a JSON header, the header, the data: https://huggingface.co/docs/safetensors.  Other
programs can read the tensors by name; the structure around them is stored in the header's metadata, under "tree".

The format is implemented here, in some thirty lines, instead of with the safetensors library (0.8), because that
returns metadata only from files, while ranks exchange bytes; its save() holds the data twice in memory, pieces() once;
and it would be one more package in every base image, installed by SageMaker at the start of each job.  The tests
compare both.
"""

import json
import math
import mmap
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

LENGTH = 8  # bytes that hold the length of the header, little-endian
LARGEST_HEADER = 100_000_000  # the safetensors library's limit
METADATA = "__metadata__"
TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
NAMES = {dtype: name for name, dtype in TYPES.items()}

Header = dict[str, dict[str, Any]]


def dumps(tree: Any) -> bytes:
    """Serialise a tree of dicts, lists, tuples, CPU tensors and plain values.  Raises TypeError for anything else."""
    return b"".join(pieces(tree))


def pieces(tree: Any) -> list[bytes | memoryview]:
    """The pieces that dumps() joins; contiguous tensors are not copied."""
    tensors: dict[str, Tensor] = {}
    metadata = {"tree": json.dumps(_described(tree, "", tensors))}
    # Larger element types first, so that every tensor is aligned.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {METADATA: metadata}
    end = 0
    for name in names:
        tensor = tensors[name]
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(LENGTH, "little"), text, *(_bytes(tensors[name]) for name in names)]


def loads(data: bytes) -> Any:
    """Restore the argument of dumps(); for a safetensors file of another program, its tensors by name.

    Raises ValueError for anything else.  Runs no code in `data`.
    """
    with _refusing():
        header, begin = _header(data)
        return _assembled(header, bytearray(memoryview(data)[begin:]), 0)


def read_mapped(path: Path) -> Any:
    """Read a file as loads() does, memory-mapped, so that processes of one machine share its tensors' memory.

    Writing to a tensor copies the page (copy-on-write).  Raises ValueError and OSError.
    """
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    with _refusing():
        header, begin = _header(data)
        return _assembled(header, data, begin)


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn any error caused by malformed data into a ValueError."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, RecursionError, RuntimeError, OverflowError) as error:
        raise ValueError(f"not a file of tensors: {error}") from error


def _assembled(header: Header, data: bytearray | mmap.mmap, first: int) -> Any:
    metadata = header.pop(METADATA, {})
    tensors = dict(_tensors(header, data, first))
    return _restored(json.loads(metadata["tree"]), tensors) if "tree" in metadata else tensors


def is_plain(data: bytes | mmap.mmap) -> bool:
    """Whether `data` begins like the output of dumps()."""
    return data[LENGTH : LENGTH + 1] == b"{" and 0 < int.from_bytes(data[:LENGTH], "little") <= LARGEST_HEADER


def _header(data: bytes | mmap.mmap) -> tuple[Header, int]:
    if not is_plain(data):
        raise ValueError("no header")
    begin = LENGTH + int.from_bytes(data[:LENGTH], "little")
    text = bytes(data[LENGTH:begin])
    header = json.loads(text)
    if begin > len(data) or not isinstance(header, dict):
        raise ValueError("its header is cut off")
    return header, begin


def _tensors(header: Header, data: bytearray | mmap.mmap, first: int) -> Iterator[tuple[str, Tensor]]:
    """The named tensors in `data`, from byte `first` on; they share its memory.  Raises ValueError."""
    for name, row in header.items():
        dtype, shape, (begin, end) = TYPES[row["dtype"]], row["shape"], row["data_offsets"]
        size = math.prod(shape)
        if not 0 <= begin <= end <= len(data) - first or end - begin != size * dtype.itemsize:
            raise ValueError(f"{name!r} lies outside the file")
        stored = torch.uint8 if dtype is torch.bool else dtype
        flat = torch.empty(0, dtype=stored)  # frombuffer rejects a count of 0
        if size:
            flat = torch.frombuffer(data, dtype=stored, count=size, offset=first + begin)
        yield name, (flat != 0 if dtype is torch.bool else flat).reshape(shape)


def _bytes(tensor: Tensor) -> memoryview | bytes:
    """The tensor's data, without a copy if it is contiguous, as checkpoints may have gigabytes."""
    if sys.byteorder != "little":
        raise TypeError("the format is little-endian, and this machine is not")
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else b""


def _described(tree: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Encode `tree` for JSON, which has no tensors, tuples or integer keys."""
    if isinstance(tree, Tensor):
        return {"tensor": _named(tree, name, tensors)}
    if isinstance(tree, Mapping):
        _check_keys(tree, name)
        return {"dict": [[key, _described(value, _below(name, key), tensors)] for key, value in tree.items()]}
    if isinstance(tree, (list, tuple)):
        rows = [_described(value, _below(name, index), tensors) for index, value in enumerate(tree)]
        return {"tuple" if isinstance(tree, tuple) else "list": rows}
    if tree is None or isinstance(tree, (str, bool, int, float)):
        return tree
    raise TypeError(f"{name}: a {type(tree).__name__} cannot be saved")


def _named(tensor: Tensor, name: str, tensors: dict[str, Tensor]) -> str:
    """Add the tensor to `tensors`.  Return its name there."""
    if tensor.dtype not in NAMES:
        raise TypeError(f"{name}: tensors of {tensor.dtype} cannot be saved")
    while not name or name in tensors or name == METADATA:  # {"a.b": ...} beside {"a": {"b": ...}}
        name += "_"
    tensors[name] = tensor.detach()
    return name


def _check_keys(tree: Mapping[Any, Any], name: str) -> None:
    for key in tree:
        if type(key) not in (str, int):
            raise TypeError(f"{name}: a key {key!r} cannot be saved")


def _below(name: str, key: str | int) -> str:
    return f"{name}.{key}" if name else str(key)


def _restored(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _restored(value, tensors) for key, value in content}
    rows = [_restored(value, tensors) for value in content]
    return {"list": rows, "tuple": tuple(rows)}[kind]
