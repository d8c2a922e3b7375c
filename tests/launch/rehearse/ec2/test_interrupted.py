"""Rehearsals on EC2 that are ended from outside: nothing is left, on the embedded AWS and on this machine.

Several at a time, as they mostly wait: an interrupted launcher makes sure for 20 s that no node comes late.
"""

import os
import signal

import pytest

from tests.launch.rehearse.ec2.conftest import needs_namespaces
from tests.launch.rehearse.terminal import Start

pytestmark = [needs_namespaces, pytest.mark.timeout(400)]

LONG = ("--nodes", "1", "--rehearse", "--epochs", "99", "--no-plot", "--job-name", "job")
STOPPED = {129, 130, 137, 143}
ALL_GONE = "resources: 5 made, 5 removed, 0 left"


@pytest.mark.slow("SIGTERM, SIGHUP and two Ctrl-C during the boot of a rehearsal leave nothing")
def test_signals_during_the_boot_remove_the_job_and_leave_nothing(start: Start) -> None:
    terminated, hung_up, interrupted = (start(*LONG) for _ in range(3))
    terminated.wait_for(": boots")
    terminated.process.send_signal(signal.SIGTERM)
    hung_up.wait_for(": boots")
    hung_up.process.send_signal(signal.SIGHUP)
    interrupted.wait_for(": boots")
    interrupted.process.send_signal(signal.SIGINT)
    interrupted.wait_for("Press Ctrl-C again")
    interrupted.process.send_signal(signal.SIGINT)

    for terminal in (terminated, hung_up, interrupted):
        assert terminal.end() in STOPPED, terminal.text
        assert "Traceback" not in terminal.text
        assert ALL_GONE in terminal.text
        assert terminal.left() == []


@pytest.mark.slow("Ctrl-C, and kill -9 of a rehearsal or its launcher, during the training leave nothing")
def test_ctrl_c_and_kill_9_during_the_training_leave_nothing(start: Start) -> None:
    interrupted, launcher_killed, killed = (start(*LONG) for _ in range(3))
    killed.wait_for(": trains")
    killed.process.kill()
    killed.process.wait()
    launcher_killed.wait_for(": trains")
    assert len(launcher_killed.processes()) > 5  # what is looked for afterwards
    os.kill(launcher_killed.launcher(), signal.SIGKILL)
    interrupted.wait_for("epoch 1/99")
    interrupted.process.send_signal(signal.SIGINT)

    assert killed.left() == []

    assert launcher_killed.end() == 137
    assert "python -m launch.ec2 attach job" in launcher_killed.text
    assert ALL_GONE in launcher_killed.text
    assert launcher_killed.left() == []

    assert interrupted.end() == 130
    assert ALL_GONE in interrupted.text
    assert interrupted.left() == []
