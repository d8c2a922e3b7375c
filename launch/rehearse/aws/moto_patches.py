"""Changes moto's own classes for a while: what it lacks or has wrong is mended where its server has it, too."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock


def changed(owner: type, name: str, new: Callable[..., Any], rules: Any) -> AbstractContextManager[Any]:
    """Meanwhile `new` is in place of owner.name: it gets the rules, moto's own method and its arguments."""
    original = getattr(owner, name, None)

    def method(self: Any, *args: Any, **named: Any) -> Any:
        return new(rules, original, self, *args, **named)

    return mock.patch.object(owner, name, method, create=True)
