"""Rehearsals on EC2 that somebody ends: nothing is left, on the embedded AWS and on this machine.

Several at a time, for they mostly wait: a launcher that is interrupted makes sure for 20 s that no node comes late.
"""

import os
import signal
import time

from tests.launch.rehearse.ec2.conftest import needs_namespaces
from tests.launch.rehearse.terminal import Start

LONG = ("--nodes", "1", "--rehearse", "--epochs", "99", "--no-plot", "--job-name", "job")
ALL_GONE = "resources: 5 made, 5 removed, 0 left"


@needs_namespaces
def test_whatever_asks_it_to_end_takes_the_job_down_and_leaves_nothing(start: Start) -> None:
    terminals = [start(*LONG) for _ in range(3)]
    asks = [[signal.SIGTERM], [signal.SIGHUP], [signal.SIGINT, signal.SIGINT]]

    for terminal, signals in zip(terminals, asks, strict=True):
        terminal.wait_for(": boots")
        for signum in signals:
            terminal.process.send_signal(signum)
            time.sleep(0.3)

    codes = [terminal.end() for terminal in terminals]
    for terminal, code in zip(terminals, codes, strict=True):
        assert code in (129, 130, 137, 143), terminal.text
        assert "Traceback" not in terminal.text
        assert ALL_GONE in terminal.text
        assert terminal.left() == []


@needs_namespaces
def test_ctrl_c_and_kill_9_in_the_middle_of_the_training_leave_nothing(start: Start) -> None:
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
