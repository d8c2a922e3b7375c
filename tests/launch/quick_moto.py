"""What takes moto longest, to find what goes into an answer, without working out the same names for every answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from botocore.model import Shape
from moto.core.serialize import AttributePickerContext, ResponseSerializer, XFormedAttributePicker
from moto.core.utils import MISSING, get_value

Names = tuple[str, ...]


@contextmanager
def quick() -> Iterator[None]:
    """moto answers the same in less time, inside the block."""
    original = ResponseSerializer.get_value

    def value(serializer: ResponseSerializer, of: Any, key: str, shape: Shape) -> Any:
        picker = serializer._value_picker
        if type(picker) is not XFormedAttributePicker or hasattr(of, "Meta"):  # which may change the names
            return original(serializer, of, key, shape)
        found = first_of(of, names_of(picker, of, key, shape))
        path = ".".join([*serializer.path, key]) if picker.response_transformers else ""
        for end, transform in picker.response_transformers.items():
            if path.endswith(end):
                return transform(found)
        return found

    with mock.patch.object(ResponseSerializer, "get_value", value):
        yield


def names_of(picker: XFormedAttributePicker, of: Any, key: str, shape: Shape) -> Names:
    """Under which names moto looks for a member of `of`, each once.  Kept with the shape: it and a class decide."""
    known: dict[tuple[type, str], Names] = shape.__dict__.setdefault("names_of_members", {})
    names = known.get((type(of), key))
    if names is None:
        names = tuple(dict.fromkeys(picker.get_possible_keys(AttributePickerContext(of, key, shape))))
        known[type(of), key] = names
    return names


def first_of(of: Any, names: Names) -> Any:
    """The value of the first name that `of` has, or None."""
    for name in names:
        found = get_value(of, name, MISSING)
        if found is not MISSING:
            return found
    return None
