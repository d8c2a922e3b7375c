"""Whole rehearsals on SageMaker, as a user starts them.  Each ends with nothing left, on the embedded AWS and here."""

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from tests.launch.rehearse.sagemaker.conftest import SETTINGS, Rehearse, needs_network
from tests.launch.rehearse.terminal import Kept, Start, Terminal

# As a user who is not root, although the tests may be.
WITHOUT_ROOT = """
import sys
from launch.rehearse import sagemaker
from launch.sagemaker.__main__ import main
sagemaker.why_no_network = lambda: "needs root, for namespaces and mounts"
sys.exit(main(sys.argv[1:]))
"""


MARK = b"STAND_IN_CONTAINER"


def containers(terminal: Terminal) -> list[int]:
    """Processes of containers, which have an environment of their own."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has just ended
            text = environment.read_bytes()
            if MARK in text and str(terminal.folder).encode() in text:
                found.append(int(environment.parent.name))
    return found


def left_of_containers(terminal: Terminal) -> list[int]:
    """Those that are still there after a while."""
    give_up = time.monotonic() + 15
    while (left := containers(terminal)) and time.monotonic() < give_up:
        time.sleep(0.1)
    return left


def assert_nothing_left(terminal: Terminal, made: int = 1) -> None:
    """On the embedded AWS, and on this machine."""
    assert f"resources: {made} made, {made} removed, 0 left" in terminal.text
    assert terminal.left() == []
    assert left_of_containers(terminal) == []


def assert_same_training(terminal: Terminal, undisturbed: Kept) -> None:
    """The same epochs and the same weights, bit for bit."""
    losses = [[(row["epoch"], row["train_loss"]) for row in kept.epochs()] for kept in (terminal.kept, undisturbed)]
    assert losses[0] == losses[1]
    before, after = undisturbed.weights(), terminal.weights()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.slow("a rehearsed SageMaker job trains under mpirun and leaves nothing")
def test_a_job_trains_and_leaves_nothing(undisturbed: Kept) -> None:
    assert [row["epoch"] for row in undisturbed.epochs()] == [1, 2, 3, 4]
    assert "resources: 1 made, 1 removed, 0 left" in undisturbed.text
    assert "sagemaker:CreateTrainingJob 1" in undisturbed.text
    assert "mpirun" in undisturbed.text
    assert (undisturbed.folder / "runs/job/requests.jsonl").exists()
    assert list((undisturbed.folder / "runs/job/logs").glob("algo-1-*.log"))
    phases = re.findall(r"(plan|provision|boot|rendezvous|train|tear down) +(\d+\.\d) s", undisturbed.text)
    assert len(phases) == 6
    assert all(float(seconds) > 0 for name, seconds in phases if name != "boot")


@needs_network
@pytest.mark.slow("a rehearsed SageMaker job trains under mpirun and leaves nothing")
def test_nothing_in_it_listens_beyond_loopback(undisturbed: Kept) -> None:
    """mpirun listens on every address of its machine: of the hosts, which are namespaces here.  Without root there are
    none, and it listens on this machine's: see SECURITY.md.
    """
    undisturbed.assert_only_loopback()


@needs_network
@pytest.mark.slow("a SageMaker job with an interruption, a full disk and a killed launcher ends with the same weights")
def test_after_an_interruption_a_full_disk_and_the_loss_of_the_launcher_the_weights_are_the_same(
    undisturbed: Kept, rehearse: Rehearse
) -> None:
    """SageMaker restarts an interrupted job; after a full disk the same command makes another one."""
    faults = "throttle,launcher-killed@call:33,spot-notice@epoch:1,disk-full@epoch:2"
    terminal = rehearse("--spot", "--inject", faults)

    assert terminal.end() == 0, terminal.text

    for fault in faults.split(","):
        assert f"{fault}: " in terminal.text
    assert "node algo-1, rank 0: off, Interrupted" in terminal.text
    assert "launch: exit code 137" in terminal.text
    assert "job is already running" in terminal.text
    assert re.search(r"error: cannot write .*No space left", terminal.text)
    assert "job--2 is started" in terminal.text
    assert_nothing_left(terminal, made=2)
    assert_same_training(terminal, undisturbed)


@pytest.mark.slow("without root, Ctrl-C stops a rehearsed SageMaker job and leaves nothing")
def test_without_root_ctrl_c_stops_the_job_and_leaves_nothing(start: Start) -> None:
    terminal = start(*SETTINGS, "--epochs", "200", code=("-c", WITHOUT_ROOT))
    terminal.wait_for("epoch 1/200")

    terminal.process.send_signal(signal.SIGINT)

    assert terminal.end() == 130
    assert "nodes: processes" in terminal.text
    assert "off, Stopped" in terminal.text
    assert_nothing_left(terminal)


@pytest.mark.slow("kill -9 of a SageMaker rehearsal, or of its launcher, leaves nothing")
def test_kill_9_leaves_nothing(rehearse: Rehearse) -> None:
    launcher_killed, killed = (rehearse("--epochs", "200") for _ in range(2))
    launcher_killed.wait_for(": trains")
    os.kill(launcher_killed.launcher(), signal.SIGKILL)
    killed.wait_for("epoch 1/200")
    assert len(containers(killed)) > 2  # what is looked for afterwards

    killed.process.kill()
    killed.process.wait()

    assert killed.left() == []
    assert left_of_containers(killed) == []
    assert launcher_killed.end() == 137
    assert "python -m launch.sagemaker attach job" in launcher_killed.text
    assert_nothing_left(launcher_killed)
