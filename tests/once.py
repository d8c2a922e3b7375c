"""What several test processes look at, made by one of them."""

import fcntl
import os
from collections.abc import Callable

import pytest


def once(name: str, make: Callable[[], str], folders: pytest.TempPathFactory) -> str:
    """The text that `make` gives to whichever test process of this run comes first; the others wait for it."""
    place = folders.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent
    note = place / f"{name}.txt"
    with (place / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not note.exists():
            note.write_text(make())
    return note.read_text()
