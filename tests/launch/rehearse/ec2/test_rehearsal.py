"""Whole rehearsals on EC2, as a user starts them: hangups_ignored, without root, and with faults."""

import re

import pytest
import torch

from launch.rehearse.nodes.ec2 import processes
from tests.launch.rehearse.ec2.conftest import SETTINGS, needs_namespaces
from tests.launch.rehearse.terminal import Kept, Start, Terminal

# As somebody who is not root, although the tests may be.
WITHOUT_ROOT = """
import sys
from launch.ec2.__main__ import main
from launch.rehearse.ec2 import namespaces
namespaces.why_not_here = lambda: "needs root, for namespaces and mounts"
sys.exit(main(sys.argv[1:]))
"""


def assert_same_training(terminal: Terminal, hangups_ignored: Kept) -> None:
    """The same epochs, of the same number of images, and the same weights, bit for bit."""
    seen = [
        [(row["epoch"], row["updates"], row["global_batch"]) for row in t.epochs()] for t in (terminal, hangups_ignored)
    ]
    assert seen[0] == seen[1]
    assert [row["train_loss"] for row in terminal.epochs()] == [row["train_loss"] for row in hangups_ignored.epochs()]
    before, after = hangups_ignored.weights(), terminal.weights()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@needs_namespaces
def test_two_nodes_train_and_disappear(hangups_ignored: Kept) -> None:
    assert [row["epoch"] for row in hangups_ignored.epochs()] == [1, 2, 3, 4]
    assert hangups_ignored.epochs()[-1]["world_size"] == 2
    assert "resources: 9 made, 9 removed, 0 left" in hangups_ignored.text
    assert "ec2:RunInstances 1" in hangups_ignored.text
    for name in ("logs/node-0.log", "logs/node-1.log", "job/cluster.json", "requests.jsonl"):
        assert (hangups_ignored.folder / "runs/job" / name).exists()
    phases = re.findall(r"(plan|provision|boot|rendezvous|train|tear down) +(\d+\.\d) s", hangups_ignored.text)
    assert len(phases) == 6
    assert all(float(seconds) > 0 for _, seconds in phases)


@needs_namespaces
def test_after_the_loss_of_a_node_and_of_the_launcher_the_weights_are_the_same(
    hangups_ignored: Kept, start: Start
) -> None:
    faults = "throttle,no-capacity:zone-a,launcher-killed@call:30,node-dies@epoch:1"
    terminal = start(*SETTINGS, "--inject", faults)

    assert terminal.end() == 0, terminal.text

    assert terminal.left() == []
    assert ", 0 left" in terminal.text
    for fault in faults.split(","):
        assert f"{fault}: " in terminal.text
    assert "launch: exit code 137" in terminal.text
    assert "us-east-1b" in terminal.text
    assert_same_training(terminal, hangups_ignored)


@needs_namespaces
def test_after_a_spot_notice_and_a_full_disk_the_weights_are_the_same(hangups_ignored: Kept, start: Start) -> None:
    """On a slow network, so that the notice comes in the middle of an epoch."""
    faults = "slow-network:50mbit,spot-notice@epoch:1,disk-full@epoch:3"
    terminal = start(*SETTINGS, "--spot", "--inject", faults)

    assert terminal.end() == 0, terminal.text

    assert terminal.left() == []
    assert ", 0 left" in terminal.text
    for fault in faults.split(","):
        assert f"{fault}: " in terminal.text
    assert "stopped as asked, in epoch" in terminal.text
    # The notice costs a node, the disk both, and the same command again makes two.
    assert "5 x instance" in terminal.text
    told = re.findall(
        r"error: (node 0 .* failed in step train with code 7: cannot write .*No space left.*)", terminal.text
    )
    assert len(told) == 1
    assert "--root-gb" in told[0]
    assert "Traceback" not in terminal.text
    codes = re.findall(r"launch: exit code (\d+)", terminal.text)
    assert codes == ["7", "0"]
    assert max(row["all_reduce_gb_per_s"] for row in terminal.epochs()) < 1.2 * 50 / 8000
    assert min(row["all_reduce_gb_per_s"] for row in hangups_ignored.epochs()) > 50 / 8000
    assert_same_training(terminal, hangups_ignored)


@pytest.mark.skipif(processes.why_not_here() is not None, reason=processes.why_not_here() or "")
@needs_namespaces
def test_without_root_nodes_are_processes_and_train_the_same(hangups_ignored: Kept, start: Start) -> None:
    terminal = start(*SETTINGS, code=("-c", WITHOUT_ROOT))

    assert terminal.end() == 0, terminal.text

    assert "nodes: processes" in terminal.text
    assert "resources: 9 made, 9 removed, 0 left" in terminal.text
    assert terminal.left() == []
    assert_same_training(terminal, hangups_ignored)


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("disk-full", "error: --inject disk-full@epoch:1: to give a node a disk of its own, a rehearsal needs root, "
                      "for namespaces and mounts; here nodes are processes.\n"),
        ("slow-network:1gbit", "error: --inject slow-network:1gbit: to give nodes a network of their own, a rehearsal "
                               "needs root, for namespaces and mounts; here nodes are processes.\n"),
    ],
)  # fmt: skip
def test_without_root_a_fault_that_needs_it_is_refused(fault: str, sentence: str, start: Start) -> None:
    terminal = start(*SETTINGS, "--inject", fault, code=("-c", WITHOUT_ROOT))

    assert terminal.end() == 2
    assert terminal.text + "\n" == sentence
    assert terminal.left() == []
