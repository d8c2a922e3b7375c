"""A script of the user's own on rehearsed nodes: the GPT of infra/examples."""

import shutil
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT
from tests.examples.loading import undisturbed
from tests.launch.rehearse.ec2.conftest import needs_nodes
from tests.launch.rehearse.terminal import Start

# It saves after every tenth step, tells of every fifth, and is killed once it has told of step 20 or later.
STEPS, EVERY = 60, 10
ARGUMENTS = ("--steps", str(STEPS), "--every", str(EVERY), "--width", "32", "--layers", "1", "--context", "32")


def records(run: Path) -> list[str]:
    """What the run has told, in its order: a line for each record, with its step."""
    return (run / "metrics.jsonl").read_text().splitlines()


def weights(run: Path) -> dict[str, torch.Tensor]:
    """Those of the newest checkpoint."""
    found: dict[str, torch.Tensor] = torch.load(max((run / "checkpoints").glob("step-*")), weights_only=True)["model"]
    return found


@needs_nodes
@pytest.mark.slow("the GPT goes on where it was after a node has died, and ends with an undisturbed run's weights")
def test_the_gpt_that_loses_a_node_ends_with_the_weights_of_an_undisturbed_run(start: Start, tmp_path: Path) -> None:
    script = shutil.copy(ROOT / "infra/examples/gpt/train.py", tmp_path)

    terminal = start(
        "--nodes", "2", "--rehearse", "--job-name", "job", "--inject", "node-dies@epoch:5", "--script", str(script),
        "--", *ARGUMENTS,
    )  # fmt: skip

    assert terminal.end() == 0, terminal.text
    undisturbed("gpt", tmp_path / "alone", *ARGUMENTS)
    assert "3 x instance" in terminal.text  # one took the lost one's place
    found, expected = records(terminal.folder / "runs/job"), records(tmp_path / "alone")
    assert set(found) == set(expected)
    lost = len(found) - len(expected)
    assert 0 <= lost <= 3  # of the steps since the newest checkpoint, which were done and told again
    broken, unbroken = weights(terminal.folder / "runs/job"), weights(tmp_path / "alone")
    assert [name for name in unbroken if not torch.equal(broken[name], unbroken[name])] == []
    assert " 0 left" in terminal.text
