"""A rehearsed job in a queue: nothing on the user's machine follows it, and it ends as one that is followed."""

import re

import pytest

from tests.launch.rehearse.ec2.conftest import SETTINGS, needs_nodes
from tests.launch.rehearse.terminal import Kept, Start

pytestmark = [needs_nodes, pytest.mark.timeout(600)]

# The launchers on Fargate hold a lease of seconds in place of two minutes, for which each successor waits.
SHORT_LEASES = """
import sys
from launch.ec2.__main__ import main
from launch.rehearse.nodes import fargate
CONTROLLER = '''
from launch.ec2 import lease
from launch.rehearse import watchdog
lease.LEASE_S, lease.RENEW_S, lease.LOOK_EVERY_S = 6.0, 1.0, 0.5
watchdog.main()
'''
here = fargate.here
fargate.here = lambda command: [sys.executable, "-P", "-c", CONTROLLER, *here(command)[4:]]
sys.exit(main(sys.argv[1:]))
"""
KILLED = ("controller-killed@epoch:1", "controller-killed@epoch:1", "controller-killed@epoch:2")


@pytest.mark.slow("a job in a queue survives a lost node and three deaths of its launcher with nobody's laptop open")
def test_without_a_laptop_a_lost_node_and_three_dead_launchers_change_no_weight(
    start: Start, request: pytest.FixtureRequest
) -> None:
    faults = ",".join(("node-dies@epoch:1", *KILLED))
    terminal = start(*SETTINGS, "--queue", "demo", "--inject", faults, code=("-c", SHORT_LEASES))

    assert terminal.end() == 0, terminal.text
    assert terminal.text.count("injected controller-killed") == len(KILLED)
    assert "injected node-dies" in terminal.text
    assert "Traceback" not in terminal.text
    assert re.findall(r"^  (\w+): exit code (\d+)$", terminal.text, re.MULTILINE) == [("launch", "0"), ("fetch", "0")]
    assert ", 0 left" in terminal.text
    assert "3 x instance" in terminal.text  # one took the lost node's place, and nobody led when the training ended
    assert terminal.left() == []
    undisturbed: Kept = request.getfixturevalue("undisturbed")  # played meanwhile by another test
    terminal.kept.assert_same_training(undisturbed)
