"""One process, two ranks on one machine and two rehearsed nodes: the same global batches, and so the same loss.

The model has no batch norm, which would see other batches.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import trainer_env
from tests.launch.rehearse.ec2.conftest import TRAINING, needs_nodes
from tests.launch.rehearse.terminal import Kept


def losses(folder: Path, *command: str) -> list[tuple[int, float, float]]:
    """Global batch, training loss and evaluation loss of each epoch."""
    command = (sys.executable, "-m", *command, *TRAINING, "--run-dir", str(folder / "run"))
    subprocess.run(command, cwd=folder, env=trainer_env(), check=True, capture_output=True, timeout=120)
    return of((folder / "run/metrics.jsonl").read_text())


def of(metrics: str) -> list[tuple[int, float, float]]:
    rows = [json.loads(line) for line in metrics.splitlines()]
    return [(row["global_batch"], row["train_loss"], row["eval_loss"]) for row in rows]


@needs_nodes
@pytest.mark.slow("one process, two ranks and two rehearsed nodes have the same losses")
def test_the_loss_does_not_depend_on_where_the_ranks_are(undisturbed: Kept, tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()

    one = losses(tmp_path, "trainer", "--batch-size", "64")
    local = losses(tmp_path / "local", "launch.local", "--nproc-per-node", "2", "--batch-size", "32")
    nodes = of((undisturbed.folder / "runs/job/metrics.jsonl").read_text())

    assert [batch for batch, *_ in one] == [64] * 4
    for other in (local, nodes):
        for expected, found in zip(one, other, strict=True):
            assert found == pytest.approx(expected, abs=1e-4)
