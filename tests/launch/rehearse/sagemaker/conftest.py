"""The undisturbed rehearsal that several tests look at: it runs once, in whichever test process comes first."""

from collections.abc import Callable
from functools import partial

import pytest

from launch.rehearse.nodes.sagemaker.network import why_no_network
from tests.launch.rehearse.terminal import Kept, Start, Terminal, played_once

# boto3 starts sooner than SageMaker's SDK, of which tests/launch/sagemaker/test_end_to_end.py has a whole job.
SETTINGS = ("--rehearse", "--job-name", "job", "--through", "boto3")
TRAINING = ("--model", "cnn", "--dataset", "synthetic", "--synthetic-images", "16384", "--image-size", "8", "--epochs",
            "3", "--precision", "fp32", "--no-plot")  # fmt: skip

needs_network = pytest.mark.skipif(why_no_network() is not None, reason=f"a network of hosts {why_no_network()}")

Rehearse = Callable[..., Terminal]  # further words of the command line


@pytest.fixture
def rehearse(start: Start) -> Rehearse:
    """Starts a rehearsal of SETTINGS and TRAINING."""
    return partial(start, *SETTINGS, *TRAINING, module="launch.sagemaker")


@pytest.fixture
def undisturbed(rehearse: Rehearse, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A rehearsal without faults."""
    return played_once("undisturbed-sagemaker", rehearse, tmp_path_factory, "epoch 1/")
