"""Patches moto's own classes: what it lacks or gets wrong is then right in its server, too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock


def locked(act: Callable[..., Any]) -> Callable[..., Any]:
    """`act` under the lock of the rules, which are its first argument or an attribute of it.

    moto's server has a thread for each request, and its own classes have no locks: without one, two requests at a time
    see or make half of a resource.
    """

    @functools.wraps(act)
    def act_locked(first: Any, *args: Any, **named: Any) -> Any:
        with getattr(first, "rules", first).lock:
            return act(first, *args, **named)

    return act_locked


def replaced(owner: type, name: str, new: Callable[..., Any], rules: Any) -> AbstractContextManager[Any]:
    """Replaces owner.name inside the block by `new`, which gets the rules, moto's own method and its arguments."""
    original = getattr(owner, name, None)
    under_lock = locked(new)

    def method(self: Any, *args: Any, **named: Any) -> Any:
        return under_lock(rules, original, self, *args, **named)

    return mock.patch.object(owner, name, method, create=True)
