"""The rehearsal that several tests look at: it is run once, whichever test process comes first."""

import fcntl
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from launch.rehearse.sagemaker.network import why_no_network
from tests.launch.rehearse.terminal import Kept, Start, Terminal

SETTINGS = ("--rehearse", "--epochs", "4", "--precision", "fp32", "--no-plot", "--job-name", "job")

needs_network = pytest.mark.skipif(why_no_network() is not None, reason=why_no_network() or "")

Rehearse = Callable[..., Terminal]  # further words of the command line


@pytest.fixture
def rehearse(start: Start) -> Rehearse:
    """Starts a rehearsal of SETTINGS."""
    return partial(start, *SETTINGS, module="launch.sagemaker")


@pytest.fixture
def undisturbed(rehearse: Rehearse, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A rehearsal in which nothing went wrong."""
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent
    note = place / "undisturbed-sagemaker.json"
    with (place / "undisturbed-sagemaker.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not note.exists():
            terminal = rehearse()
            assert terminal.end() == 0, terminal.text
            note.write_text(json.dumps({
                "folder": str(terminal.folder), "said": terminal.said, "left": terminal.left(),
            }))  # fmt: skip
    known = json.loads(note.read_text())
    assert known["left"] == []
    return Kept(Path(known["folder"]), known["said"])
