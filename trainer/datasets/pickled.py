"""Arrays that somebody pickled, as CIFAR's page hands them out."""

import io
import pickle  # nosec B403  # what it reads is limited to arrays, and to classes of this file
import re
from typing import Any

import numpy as np

DAMAGE = (
    pickle.UnpicklingError, EOFError, KeyError, ValueError, IndexError, TypeError, AttributeError, MemoryError,
    OverflowError,
)  # fmt: skip

_NUMBER = re.compile(r"[biuf][1248]")  # NumPy's names of numbers, without an order of bytes
_ARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")  # older NumPys, and newer ones


def read_arrays(data: bytes) -> dict[str, Any]:
    """A pickled dictionary of arrays of numbers, numbers and bytes.  Raises one of DAMAGE; nothing in it can run.

    The arrays cannot be written to.
    """
    content = _Arrays(io.BytesIO(data), encoding="bytes").load()
    if not isinstance(content, dict):
        raise ValueError("no dictionary")
    return {_text(key): value.array() if isinstance(value, _Array) else value for key, value in content.items()}


def _text(value: object) -> str:
    """Raises ValueError for what is no text: shown, a tuple may have the same megabyte a million times."""
    if not isinstance(value, (bytes, str)):
        raise ValueError("a name that is no text")
    return value.decode("latin1") if isinstance(value, bytes) else value


class _Type:
    """Stands for numpy.dtype."""

    def __init__(self, name: object, *_: object) -> None:
        self.name, self.order = _text(name), "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = _text(state[1])

    def dtype(self) -> "np.dtype[Any]":
        if not _NUMBER.fullmatch(self.name) or self.order not in ("|", "=", "<", ">"):
            raise ValueError("an array of something else than numbers")
        return np.dtype(self.order + self.name)


class _Array:
    """Stands for numpy.ndarray, of which it makes one only when all is read, and only of numbers.

    NumPy itself believes what a pickle says of a type: one that calls eight bytes of the file an object has it follow
    them as an address.
    """

    def __init__(self, *_: object) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def array(self) -> "np.ndarray[Any, Any]":
        _, shape, of, is_fortran, numbers = self.state
        if not isinstance(of, _Type) or not isinstance(numbers, bytes):
            raise ValueError("an array of something else than numbers")
        return np.frombuffer(numbers, of.dtype()).reshape(shape, order="F" if is_fortran else "C")


class _Arrays(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module in _ARRAY and name == "_reconstruct":
            return _Array
        if module == "numpy" and name in ("ndarray", "dtype"):
            return _Type if name == "dtype" else _Array
        raise pickle.UnpicklingError(f"{module}.{name} is no part of an array")
