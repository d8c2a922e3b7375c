"""Tables of names: name -> "module:function", imported on use, with the nearest name for a misspelt one."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from trainer.errors import SettingsError


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A clause naming the closest of `known`, or an empty string when none is close."""
    close = get_close_matches(given.lower(), sorted(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def check_name(kind: str, name: str, known: Iterable[str]) -> None:
    """Raises SettingsError with the nearest name unless `name` is one of `known`."""
    names = list(known)
    if name not in names:
        shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        raise SettingsError(f"unknown {kind} {name!r}{did_you_mean(name, names) or '.'} Known: {shown}.")


def load(kind: str, name: str, table: Mapping[str, str]) -> Callable[..., Any]:
    """The function that `table` names "module:function" for `name`; its module is imported now."""
    check_name(kind, name, table)
    module, _, function = table[name].partition(":")
    loaded: Callable[..., Any] = getattr(import_module(module), function)
    return loaded
