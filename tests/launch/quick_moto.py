"""What takes moto and botocore longest, without working out the same for every call: a fifth of their time."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

import xmltodict
from botocore import useragent
from botocore.model import Shape
from moto.core.serialize import AttributePickerContext, ResponseSerializer, XFormedAttributePicker
from moto.core.utils import MISSING, get_value

Names = tuple[str, ...]
Transforms = Mapping[str, Callable[[Any], Any]]

# Of moto's classes that change what they answer: by the last part of the path to it, the ends of paths.
_by_last_part: dict[int, tuple[Transforms, dict[str, Transforms]]] = {}


@contextmanager
def quick() -> Iterator[None]:
    """Inside the block they do the same in less time."""
    original = ResponseSerializer.get_value

    def value(serializer: ResponseSerializer, of: Any, key: str, shape: Shape) -> Any:
        picker = serializer._value_picker
        if type(picker) is not XFormedAttributePicker or hasattr(of, "Meta"):  # which may change the names
            return original(serializer, of, key, shape)
        found = first_of(of, names_of(picker, of, key, shape))
        for end, transform in transforms_of(picker.response_transformers, key).items():
            if ".".join([*serializer.path, key]).endswith(end):
                return transform(found)
        return found

    name, part = "_validate_name", "sanitize_user_agent_string_component"
    with (
        mock.patch.object(ResponseSerializer, "get_value", value),
        mock.patch.object(xmltodict, name, cache(getattr(xmltodict, name))),
        mock.patch.object(useragent, part, cache(getattr(useragent, part))),
    ):
        yield


def transforms_of(transforms: Transforms, key: str) -> Transforms:
    """Those that may be meant where a path ends with `key`."""
    if not transforms:
        return transforms
    if id(transforms) not in _by_last_part:
        assert all("." in end for end in transforms), transforms  # else one may end in the middle of a key
        parts = dict[str, dict[str, Callable[[Any], Any]]]()
        for end, transform in transforms.items():
            parts.setdefault(end.rpartition(".")[2], {})[end] = transform
        _by_last_part[id(transforms)] = transforms, parts  # type: ignore[assignment]
    return _by_last_part[id(transforms)][1].get(key, {})


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
