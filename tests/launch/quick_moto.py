"""What takes moto and botocore longest, without working out the same for every call: a fifth of their time."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock
from xml.sax.saxutils import XMLGenerator, escape, quoteattr

import xmltodict
from botocore import useragent
from botocore.model import Shape
from moto.core.base_backend import BaseBackend
from moto.core.serialize import AttributePickerContext, ResponseSerializer, XFormedAttributePicker
from moto.core.utils import MISSING, get_value
from moto.ec2.models.instance_types import InstanceTypeOfferingBackend

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

    part = "sanitize_user_agent_string_component"
    with (
        mock.patch.object(ResponseSerializer, "get_value", value),
        mock.patch.object(xmltodict, "_emit", emit),
        mock.patch.object(useragent, part, cache(getattr(useragent, part))),
        mock.patch.object(BaseBackend, "urls", property(urls_of)),
        mock.patch.object(InstanceTypeOfferingBackend, "describe_instance_type_offerings", offerings),
    ):
        yield


# ---- XML

_text_of = xmltodict._convert_value_to_string
_validate = cache(xmltodict._validate_name)


def emit(key: str, value: Any, handler: XMLGenerator, **options: Any) -> None:
    """xmltodict's, without a handler for every element.  For moto's documents: none is indented, or has comments."""
    assert not options.get("pretty"), "this writes everything on one line"
    if options.get("full_document", True) and is_many(value) and len(value) > 1:
        raise ValueError("document with multiple roots")
    parts = list[str]()
    write_elements(key, value, parts, handler._short_empty_elements)  # type: ignore[attr-defined]
    handler._write("".join(parts))  # type: ignore[attr-defined]


def write_elements(key: str, value: Any, parts: list[str], is_short: bool) -> None:
    """Appends the text of the elements that are made of a key and its value.  is_short: <a/> for <a></a>."""
    _validate(key, "element")
    for one in value if is_many(value) else [value]:
        held = one if isinstance(one, dict) else {"#text": one}
        parts.append("<" + key)
        parts.extend(attribute(name[1:], inner) for name, inner in held.items() if name[0] == "@")
        parts.append(">")
        before = len(parts)
        for name, inner in held.items():
            if name[0] not in "@#" and inner != []:
                write_elements(name, inner, parts, is_short)
        text = held.get("#text")
        if text is not None and text != "":
            parts.append(escape(_text_of(text)))
        if len(parts) == before and is_short:
            parts[-1] = "/>"
        else:
            parts.append(f"</{key}>")


def is_many(value: Any) -> bool:
    return hasattr(value, "__iter__") and not isinstance(value, str | bytes | dict)


def attribute(name: str, value: Any) -> str:
    _validate(name, "attribute")
    return f" {name}={quoteattr('' if value is None else _text_of(value))}"


# ---- tables that never change

_urls: dict[tuple[type, int], dict[str, Callable[..., Any]]] = {}
_urls_of, _offerings = BaseBackend.urls.fget, InstanceTypeOfferingBackend.describe_instance_type_offerings
_offered: dict[tuple[str, ...], list[Any]] = {}


def urls_of(backend: BaseBackend) -> dict[str, Callable[..., Any]]:
    known = type(backend), len(backend._url_module.url_paths)  # patches may add to them
    if known not in _urls:
        _urls[known] = _urls_of(backend)
    return _urls[known]


def offerings(backend: Any, place: str | None = None, filters: dict[str, Any] | None = None) -> list[Any]:
    asked = (backend.region_name, str(place), repr(filters))
    if asked not in _offered:
        _offered[asked] = _offerings(backend, place, filters)
    return _offered[asked]


# ---- values of answers


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
