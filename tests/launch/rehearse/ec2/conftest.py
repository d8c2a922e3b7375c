"""The rehearsals that several tests look at: each is run once, whichever test process comes first."""

import fcntl
import json
import os
from pathlib import Path

import pytest

from launch.rehearse.ec2 import namespaces
from tests.launch.rehearse.terminal import Kept, Start

# A low rate: with a high one rounding alone leads to other weights, where the ranks add up in another order.
TRAINING = (
    "--model",
    "cnn",
    "--dataset",
    "digits",
    "--epochs",
    "4",
    "--precision",
    "fp32",
    "--lr",
    "0.003",
    "--no-plot",
)
SETTINGS = ("--nodes", "2", "--rehearse", "--job-name", "job", *TRAINING)

needs_namespaces = pytest.mark.skipif(namespaces.why_not_here() is not None, reason=namespaces.why_not_here() or "")


@pytest.fixture
def undisturbed(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A rehearsal of SETTINGS in which nothing went wrong."""
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent
    note = place / "undisturbed.json"
    with (place / "undisturbed.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not note.exists():
            terminal = start(*SETTINGS)
            assert terminal.end() == 0, terminal.text
            note.write_text(json.dumps({
                "folder": str(terminal.folder), "said": terminal.said, "left": terminal.left(),
            }))  # fmt: skip
    known = json.loads(note.read_text())
    assert known["left"] == []
    return Kept(Path(known["folder"]), known["said"])
