"""The undisturbed rehearsal that several tests look at: it runs once, in whichever test process comes first."""

from functools import partial

import pytest

from launch.rehearse.nodes.ec2 import namespaces, processes
from tests.launch.core.test_secrets import PLANTED, WORDS
from tests.launch.rehearse.terminal import Kept, Start, played_once

# A low rate: with a high one rounding alone leads to other weights, where the ranks add up in another order.
TRAINING = ("--model", "cnn", "--dataset", "synthetic", "--synthetic-images", "1024", "--image-size", "8", "--epochs",
            "3", "--precision", "fp32", "--lr", "0.003", "--no-plot")  # fmt: skip
SETTINGS = ("--nodes", "2", "--rehearse", "--job-name", "job", *TRAINING)

# With secrets in AWS and in the user's own environment.
WITH_SECRETS = f"""
import os, sys
from launch.ec2.__main__ import main
from launch.rehearse.aws import account
account.REHEARSED = "{PLANTED}"
os.environ |= {{"WANDB_API_KEY": "{PLANTED}", "AWS_SECRET_ACCESS_KEY": "{PLANTED}", "HF_TOKEN": "{PLANTED}"}}
sys.exit(main(sys.argv[1:]))
"""
# As a user who is not root, although the tests may be.
WITHOUT_ROOT = """
import sys
from launch.ec2.__main__ import main
from launch.rehearse.nodes.ec2 import namespaces
namespaces.why_not_here = lambda: "needs root, for namespaces and mounts"
sys.exit(main(sys.argv[1:]))
"""

why_no_nodes = namespaces.why_not_here() and processes.why_not_here()
needs_nodes = pytest.mark.skipif(why_no_nodes is not None, reason=f"a rehearsal {why_no_nodes}")
needs_namespaces = pytest.mark.skipif(
    namespaces.why_not_here() is not None, reason=f"a rehearsal in namespaces {namespaces.why_not_here()}"
)


@pytest.fixture
def undisturbed(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A rehearsal of SETTINGS without faults, with planted secrets, in namespaces where that is possible."""
    words = (*SETTINGS, "--secret", ",".join(WORDS), "--outcome", "ended")
    play = partial(start, *words, code=("-c", WITH_SECRETS))
    return played_once("undisturbed-ec2", play, tmp_path_factory, "epoch 1/")
