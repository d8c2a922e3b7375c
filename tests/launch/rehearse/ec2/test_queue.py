"""A rehearsed job in a queue, with a script of the user's own: nothing on the user's machine follows it."""

import re
import shutil
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT
from tests.examples.loading import undisturbed
from tests.launch.rehearse.ec2.conftest import needs_nodes
from tests.launch.rehearse.terminal import Start

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
# The GPT of infra/examples.  It saves after every tenth step and records every fifth.
ARGUMENTS = ("--steps", "60", "--every", "10", "--width", "32", "--layers", "1", "--context", "32")
KILLED = ("controller-killed@epoch:1", "controller-killed@epoch:1", "controller-killed@epoch:2")


def records(run: Path) -> list[str]:
    """The run's records in their order, each with its step."""
    return (run / "metrics.jsonl").read_text().splitlines()


def weights(run: Path) -> dict[str, torch.Tensor]:
    """Those of the newest checkpoint."""
    found: dict[str, torch.Tensor] = torch.load(max((run / "checkpoints").glob("step-*")), weights_only=True)["model"]
    return found


@pytest.mark.slow("a script in a queue survives a lost node and three deaths of its launcher, and changes no weight")
def test_without_a_laptop_a_lost_node_and_three_dead_launchers_change_no_weight(start: Start, tmp_path: Path) -> None:
    script = shutil.copy(ROOT / "infra/examples/gpt/train.py", tmp_path)
    words = ("--nodes", "2", "--rehearse", "--job-name", "job", "--queue", "demo", "--script", str(script))
    faults = ",".join(("node-dies@epoch:5", *KILLED))  # the fifth record, of step 20

    terminal = start(*words, "--inject", faults, "--", *ARGUMENTS, code=("-c", SHORT_LEASES))

    assert terminal.end() == 0, terminal.text
    undisturbed("gpt", tmp_path / "alone", *ARGUMENTS)
    assert terminal.text.count("injected controller-killed") == len(KILLED)
    assert "injected node-dies" in terminal.text
    tracebacks = [line for line in terminal.said if "Traceback" in line]
    assert [line for line in tracebacks if "[rank" not in line] == []  # the script fails where its peer is gone
    assert re.findall(r"^  (\w+): exit code (\d+)$", terminal.text, re.MULTILINE) == [("launch", "0"), ("fetch", "0")]
    assert "3 x instance" in terminal.text  # one took the lost node's place, and nobody led when the training ended
    found, expected = records(terminal.folder / "runs/job"), records(tmp_path / "alone")
    assert set(found) == set(expected)
    lost = len(found) - len(expected)
    assert 0 <= lost <= 3  # of the steps since the newest checkpoint, which were done and recorded again
    broken, unbroken = weights(terminal.folder / "runs/job"), weights(tmp_path / "alone")
    assert [name for name in unbroken if not torch.equal(broken[name], unbroken[name])] == []
    assert ", 0 left" in terminal.text
    assert terminal.left() == []
