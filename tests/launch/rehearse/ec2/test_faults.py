"""Whole rehearsals on EC2 with faults, and without root: they end with the weights of an undisturbed one."""

import re

import pytest
import torch

from launch.rehearse.nodes.ec2 import processes
from tests.launch.rehearse.ec2.conftest import SETTINGS, WITHOUT_ROOT, needs_namespaces
from tests.launch.rehearse.terminal import Kept, Start, Terminal

pytestmark = pytest.mark.timeout(600)  # with the undisturbed rehearsal, on a busy machine

FULL_DISK = re.compile(r"error: (node 0 .* code 7: cannot write .*No space left.*)")


def assert_same_training(terminal: Terminal, undisturbed: Kept) -> None:
    """The same epochs, of the same number of images, and the same weights, bit for bit."""
    names = ("epoch", "updates", "global_batch", "train_loss")
    rows = [[[row[name] for name in names] for row in kept.epochs()] for kept in (terminal.kept, undisturbed)]
    assert rows[0] == rows[1]
    before, after = undisturbed.weights(), terminal.weights()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def assert_injected(terminal: Terminal, faults: str) -> None:
    assert terminal.left() == []
    assert ", 0 left" in terminal.text
    for fault in faults.split(","):
        assert f"{fault}: " in terminal.text


@needs_namespaces
@pytest.mark.slow("a job with a spot notice and a full disk ends with the weights of an undisturbed one")
def test_after_a_spot_notice_and_a_full_disk_the_weights_are_the_same(undisturbed: Kept, start: Start) -> None:
    """On a slow network, so that the notice comes in the middle of an epoch."""
    faults = "slow-network:50mbit,spot-notice@epoch:1,disk-full@epoch:3"
    terminal = start(*SETTINGS, "--spot", "--inject", faults)

    assert terminal.end() == 0, terminal.text

    assert_injected(terminal, faults)
    assert "5 x instance" in terminal.text  # the notice costs one, the full disk both, and resuming makes two
    (error,) = FULL_DISK.findall(terminal.text)
    assert "--root-gb" in error
    assert "Traceback" not in terminal.text
    assert re.findall(r"launch: exit code (\d+)", terminal.text) == ["7", "0"]
    assert max(row["all_reduce_gb_per_s"] for row in terminal.epochs()) < 1.2 * 50 / 8000
    assert min(row["all_reduce_gb_per_s"] for row in undisturbed.epochs()) > 50 / 8000
    assert re.search(r"warning: the 2 nodes exchange 0\.0\d+ Gbit/s, less than half of the 0\.4", terminal.text)
    assert_same_training(terminal, undisturbed)


@needs_namespaces
@pytest.mark.slow("in the second region, without a sick node, a lost one and a killed launcher a job trains the same")
def test_after_a_lost_region_node_and_launcher_the_weights_are_the_same(undisturbed: Kept, start: Start) -> None:
    """Throttled, and with a limit in USD, for which the embedded AWS has the second region's prices."""
    faults = "throttle,no-capacity:us-east-1,launcher-killed@call:60,sick-node:1,node-dies@epoch:1"
    terminal = start(*SETTINGS, "--region", "us-east-1,us-west-2", "--max-usd", "100", "--inject", faults)

    assert terminal.end() == 0, terminal.text

    assert_injected(terminal, faults)
    assert "launch: exit code 137" in terminal.text
    assert "2 nodes started (g5.2xlarge in us-west-2a)" in terminal.text
    (named,) = set(re.findall(r"node \d \(i-\w+\) failed its health check: .*", terminal.text))
    assert named.endswith("its kernel logged NVIDIA's Xid 79 (the GPU has fallen off the bus)")
    assert "4 x instance" in terminal.text  # one took the sick node's place, one the lost node's
    assert_same_training(terminal, undisturbed)


@pytest.mark.skipif(processes.why_not_here() is not None, reason=processes.why_not_here() or "")
@needs_namespaces
@pytest.mark.slow("without root, nodes are processes and train as those in namespaces do")
def test_without_root_nodes_are_processes_and_train_the_same(undisturbed: Kept, start: Start) -> None:
    terminal = start(*SETTINGS, code=("-c", WITHOUT_ROOT))

    assert terminal.end() == 0, terminal.text

    assert "nodes: processes" in terminal.text
    assert "resources: 9 made, 9 removed, 0 left" in terminal.text
    assert terminal.left() == []
    assert_same_training(terminal, undisturbed)


def test_without_root_a_fault_that_needs_it_is_refused(start: Start) -> None:
    fault = "disk-full@epoch:1"
    terminal = start(*SETTINGS, "--inject", fault, code=("-c", WITHOUT_ROOT))

    assert terminal.end() == 2
    assert terminal.text.startswith(f"error: --inject {fault}: needs ")
    assert "needs root" in terminal.text
    assert terminal.left() == []
