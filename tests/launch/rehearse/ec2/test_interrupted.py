"""Rehearsals on EC2 that are ended from outside: nothing is left, on the embedded AWS and on this machine.

Several at a time, as they mostly wait: an interrupted launcher makes sure for 20 s that no node comes late.
"""

import os
import signal
from pathlib import Path

import pytest

from tests.launch.rehearse.ec2.conftest import WITHOUT_ROOT, needs_namespaces
from tests.launch.rehearse.terminal import Start

pytestmark = [needs_namespaces, pytest.mark.timeout(400)]

ALL_GONE = "resources: 5 made, 5 removed, 0 left"


@pytest.mark.slow("signals during the boot and the training, and kill -9 of a rehearsal or its launcher, leave nothing")
def test_signals_and_kill_9_leave_nothing(start: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time\nprint('it trains', flush=True)\ntime.sleep(600)\n")
    words = ("--nodes", "1", "--rehearse", "--job-name", "job", "--script", str(tmp_path / "train.py"))
    terminated, launcher_killed, killed = (start(*words) for _ in range(3))
    interrupted = start(*words, code=("-c", WITHOUT_ROOT))
    terminated.wait_for(": boots")
    terminated.process.send_signal(signal.SIGTERM)
    killed.wait_for(": trains")
    killed.process.kill()
    killed.process.wait()
    launcher_killed.wait_for(": trains")
    assert len(launcher_killed.processes()) > 5  # what is looked for afterwards
    os.kill(launcher_killed.launcher(), signal.SIGKILL)
    interrupted.wait_for("it trains")
    interrupted.process.send_signal(signal.SIGINT)

    assert killed.left() == []
    for terminal, code in ((terminated, 130), (launcher_killed, 137), (interrupted, 130)):
        assert terminal.end() == code, terminal.text
        assert "Traceback" not in terminal.text
        assert ALL_GONE in terminal.text
        assert terminal.left() == []
    assert "python -m launch.ec2 attach job" in launcher_killed.text
    assert "nodes: processes" in interrupted.text
