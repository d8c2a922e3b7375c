"""A script of the user's own on rehearsed nodes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import trainer_env
from tests.launch.rehearse.ec2.conftest import needs_nodes
from tests.launch.rehearse.terminal import Start

# Fits a line on two ranks: nothing of it knows the toolkit but the calls of kit.
SCRIPT = """\
import sys
import torch, torch.distributed as dist
from trainer import kit

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
inputs = torch.randn(256, 64)
wanted = inputs @ torch.linspace(-1, 1, 64)
weights = torch.zeros(64, requires_grad=True)
state = kit.load()
if state:
    weights.data = state["weights"]
for epoch in range(state["epoch"] + 1 if state else 1, int(sys.argv[1]) + 1):
    for _ in range(300):
        loss = (inputs @ weights - wanted).square().mean()
        loss.backward()
        dist.all_reduce(weights.grad)
        weights.data -= 0.001 * weights.grad
        weights.grad = None
    total = loss.detach().clone()
    dist.all_reduce(total)
    kit.save({"weights": weights.data, "epoch": epoch}, epoch)
    kit.metric(epoch=epoch, loss=total.item(), restarts=kit.restarts())
dist.destroy_process_group()
"""
EPOCHS = 14


def losses(run: Path) -> dict[int, float]:
    """The loss of each epoch: of two records of one, the later."""
    records: list[dict[str, Any]] = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {record["epoch"]: record["loss"] for record in records}


@needs_nodes
@pytest.mark.slow("a script of the user's own goes on where it was after a node has died, and ends as one undisturbed")
def test_a_script_that_loses_a_node_ends_as_an_undisturbed_one(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    words = (
        "-m",
        "launch.local",
        "--nproc-per-node",
        "2",
        "--run-dir",
        "alone",
        "--script",
        "train.py",
        "--",
        str(EPOCHS),
    )
    subprocess.run([sys.executable, *words], cwd=tmp_path, env=trainer_env(), check=True, capture_output=True)

    terminal = start(
        "--nodes", "2", "--rehearse", "--job-name", "job", "--inject", "node-dies@epoch:2", "--script", str(script),
        "--", str(EPOCHS),
    )  # fmt: skip

    assert terminal.end() == 0, terminal.text
    assert "3 x instance" in terminal.text  # one took the lost one's place
    found = losses(terminal.folder / "runs/job")
    assert found == losses(tmp_path / "alone")
    assert sorted(found) == list(range(1, EPOCHS + 1))
    assert "9 made" not in terminal.text
    assert " 0 left" in terminal.text
