"""Whole rehearsals on EC2 with faults, and without root: they end with the weights of an undisturbed one."""

import json
import re
from typing import Any

import pytest

from launch.rehearse.nodes.ec2 import processes
from tests.launch.rehearse.ec2.conftest import SETTINGS, WITHOUT_ROOT, needs_namespaces
from tests.launch.rehearse.terminal import Kept, Start, Terminal

pytestmark = pytest.mark.timeout(600)  # with the undisturbed rehearsal, on a busy machine


def undisturbed_one(request: pytest.FixtureRequest) -> Kept:
    """The undisturbed rehearsal; asked for late, when another test process has most likely played it."""
    kept: Kept = request.getfixturevalue("undisturbed")
    return kept


def assert_injected(terminal: Terminal, faults: str) -> None:
    assert terminal.left() == []
    assert ", 0 left" in terminal.text
    for fault in faults.split(","):
        assert f"{fault}: " in terminal.text


def exit_records(terminal: Terminal, step: str) -> list[dict[str, Any]]:
    """Why nodes left in this step."""
    found = [json.loads(file.read_text()) for file in (terminal.folder / "runs/job/job/exits").iterdir()]
    return [record for record in found if record["step"] == step]


@needs_namespaces
@pytest.mark.slow("a job with a spot notice and a full disk ends with the weights of an undisturbed one")
def test_after_a_spot_notice_and_a_full_disk_the_weights_are_the_same(
    start: Start, request: pytest.FixtureRequest
) -> None:
    """On a network so slow that a node sees the notice, which it looks for every 5 s, within the next epoch."""
    faults = "slow-network:12mbit,spot-notice@epoch:1,disk-full@epoch:2"
    terminal = start(*SETTINGS, "--spot", "--probe-steps", "1", "--inject", faults)

    assert terminal.end() == 0, terminal.text

    assert_injected(terminal, faults)
    assert "5 x instance" in terminal.text  # the notice costs one, the full disk both, and resuming makes two
    assert re.findall(r"launch: exit code (\d+)", terminal.text) == ["7", "0"]
    assert "--root-gb" in terminal.text
    assert "Traceback" not in terminal.text
    assert max(row["all_reduce_gb_per_s"] for row in terminal.epochs()) < 1.2 * 12 / 8000
    undisturbed = undisturbed_one(request)
    assert min(row["all_reduce_gb_per_s"] for row in undisturbed.epochs()) > 50 / 8000
    assert re.search(r"warning: the 2 nodes exchange 0\.0\d+ Gbit/s, less than half of the 0\.4", terminal.text)
    terminal.kept.assert_same_training(undisturbed)


@pytest.mark.skipif(processes.why_not_here() is not None, reason=processes.why_not_here() or "")
@needs_namespaces
@pytest.mark.slow("without root, in the second region, after a sick node and a lost launcher a job trains the same")
def test_after_a_lost_region_and_launcher_and_a_sick_node_the_weights_are_the_same(
    start: Start, request: pytest.FixtureRequest
) -> None:
    """Without root, as the faults allow it; with a limit in USD, for which the embedded AWS has the second region's
    prices.
    """
    faults = "no-capacity:us-east-1,launcher-killed@call:60,sick-node:1"
    words = (*SETTINGS, "--region", "us-east-1,us-west-2", "--max-usd", "100", "--inject", faults)
    terminal = start(*words, code=("-c", WITHOUT_ROOT))

    assert terminal.end() == 0, terminal.text

    assert_injected(terminal, faults)
    assert "nodes: processes" in terminal.text
    assert re.findall(r"launch: exit code (\d+)", terminal.text) == ["137", "0"]
    assert "2 nodes started (g5.2xlarge in us-west-2a)" in terminal.text
    (sick,) = exit_records(terminal, "health")
    assert "NVIDIA's Xid 79 (the GPU has fallen off the bus)" in sick["reason"]
    assert "3 x instance" in terminal.text  # one took the sick node's place
    terminal.kept.assert_same_training(undisturbed_one(request))


def test_without_root_a_fault_that_needs_it_is_refused(start: Start) -> None:
    fault = "disk-full@epoch:1"
    terminal = start(*SETTINGS, "--inject", fault, code=("-c", WITHOUT_ROOT))

    assert terminal.end() == 2
    assert terminal.text.startswith(f"error: --inject {fault}: needs ")
    assert "needs root" in terminal.text
    assert terminal.left() == []
