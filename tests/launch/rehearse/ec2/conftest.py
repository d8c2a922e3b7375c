"""The rehearsals that several tests look at: each is run once, whichever test process comes first."""

import pytest

from launch.rehearse.nodes.ec2 import namespaces
from tests.launch.rehearse.terminal import Kept, Start, played_once

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
def hangups_ignored(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A rehearsal of SETTINGS in which nothing went wrong."""
    return played_once("hangups_ignored-ec2", lambda: start(*SETTINGS), tmp_path_factory)
