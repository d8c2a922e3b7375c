"""A whole rehearsal on EC2 with faults ends with the weights of an undisturbed one."""

import json
import re
from typing import Any

import pytest

from tests.launch.rehearse.ec2.conftest import SETTINGS, WITHOUT_ROOT, needs_namespaces
from tests.launch.rehearse.terminal import Kept, Start, Terminal

pytestmark = pytest.mark.timeout(600)  # with the undisturbed rehearsal, on a busy machine


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
@pytest.mark.slow("in the second region, after every kind of fault, a job ends with the weights of an undisturbed one")
def test_after_every_kind_of_fault_the_weights_are_the_same(start: Start, request: pytest.FixtureRequest) -> None:
    """On a network so slow that a node sees the notice, which it looks for every 5 s, within the next epoch.

    With a limit in USD, for which the embedded AWS has the second region's prices.
    """
    faults = (
        "no-capacity:us-east-1,launcher-killed@call:60,sick-node:1,"
        "slow-network:12mbit,spot-notice@epoch:1,disk-full@epoch:2"
    )
    words = ("--region", "us-east-1,us-west-2", "--max-usd", "100", "--spot", "--probe-steps", "1")
    terminal = start(*SETTINGS, *words, "--inject", faults)

    assert terminal.end() == 0, terminal.text

    assert_injected(terminal, faults)
    assert re.findall(r"launch: exit code (\d+)", terminal.text) == ["137", "7", "0"]
    assert "2 nodes started (g5.2xlarge in us-west-2a)" in terminal.text
    (sick,) = exit_records(terminal, "health")
    assert "NVIDIA's Xid 79 (the GPU has fallen off the bus)" in sick["reason"]
    # The sick node and the notice cost one each, the full disk both, and resuming makes two.
    assert "6 x instance" in terminal.text
    assert "--root-gb" in terminal.text
    assert "Traceback" not in terminal.text
    assert max(row["all_reduce_gb_per_s"] for row in terminal.epochs()) < 1.2 * 12 / 8000
    undisturbed: Kept = request.getfixturevalue("undisturbed")  # when another process has most likely played it
    assert min(row["all_reduce_gb_per_s"] for row in undisturbed.epochs()) > 50 / 8000
    assert re.search(r"warning: the 2 nodes exchange 0\.0\d+ Gbit/s, less than half of the 0\.4", terminal.text)
    terminal.kept.assert_same_training(undisturbed)


def test_without_root_a_fault_that_needs_it_is_refused(start: Start) -> None:
    fault = "disk-full@epoch:1"
    terminal = start(*SETTINGS, "--inject", fault, code=("-c", WITHOUT_ROOT))

    assert terminal.end() == 2
    assert terminal.text.startswith(f"error: --inject {fault}: needs ")
    assert "needs root" in terminal.text
    assert terminal.left() == []
