"""Look-ups in tables of names, with the nearest name for a misspelt one, and imports by name.  Torch-free."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, TypeVar

from trainer.errors import SettingsError, one_line

Entry = TypeVar("Entry")


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A clause naming the closest of `known`, or an empty string when none is close."""
    close = get_close_matches(given.lower(), sorted(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def check_name(kind: str, name: str, known: Iterable[str]) -> None:
    """Raises SettingsError with the nearest name unless `name` is one of `known`."""
    names = list(known)
    if name not in names:
        shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        given = one_line(name)
        raise SettingsError(f"unknown {kind} {given!r}{did_you_mean(given, names) or '.'} Known: {shown}.")


def look_up(kind: str, name: str, table: Mapping[str, Entry]) -> Entry:
    """The entry of `table` for `name`.  Raises SettingsError with the nearest name."""
    check_name(kind, name, table)
    return table[name]


def import_function(reference: str) -> Callable[..., Any]:
    """The function that `reference` names as "module:function"; its module is imported now."""
    module, _, name = reference.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def one_of(names: Iterable[str]) -> str:
    """Names for a help text: 'digits, cifar10 or synthetic'."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
