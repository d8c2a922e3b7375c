"""A rehearsal with --keep-warm: a second job on the nodes of the first one."""

import re

import pytest

from launch.rehearse.nodes.ec2 import processes
from tests.launch.rehearse.ec2.conftest import SETTINGS, WITHOUT_ROOT
from tests.launch.rehearse.terminal import Start


@pytest.mark.timeout(600)
@pytest.mark.skipif(processes.why_not_here() is not None, reason=processes.why_not_here() or "")
@pytest.mark.slow("without root, a second job trains on the warm nodes of the first one, and nothing is left")
def test_a_second_job_trains_on_the_warm_nodes_of_the_first_and_nothing_is_left(start: Start) -> None:
    terminal = start(*SETTINGS, "--nodes", "1", "--epochs", "1", "--keep-warm", "10", code=("-c", WITHOUT_ROOT))

    assert terminal.end() == 0, terminal.text

    assert re.findall(r"(\w+): exit code (\d+)", terminal.text) == [("launch", "0"), ("launch", "0"), ("stop", "0")]
    assert "1 warm nodes of job (g5.2xlarge in " in terminal.text
    assert "1 x instance\n" in terminal.text
    assert terminal.text.count("epoch 1/") == 2, terminal.text
    assert ", 0 left" in terminal.text
    assert terminal.left() == []
