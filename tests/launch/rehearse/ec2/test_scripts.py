"""Scripts of the user's own on rehearsed nodes: the GPT of infra/examples, and one that fails in every hard way."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT
from tests.examples.loading import undisturbed
from tests.launch.rehearse.ec2.conftest import needs_nodes
from tests.launch.rehearse.terminal import Start

# It saves after every tenth step, tells of every fifth, and is killed once it has told of step 20 or later.
STEPS, EVERY = 120, 10
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
    assert "9 made" not in terminal.text
    assert " 0 left" in terminal.text


# Its first rank writes a large file into the run folder and 20 MB to its log, and then hangs, as all others do.
HANGS = """\
import os, time
if os.environ["RANK"] == "0":
    os.truncate(os.open(os.environ["DDP_RUN_DIR"] + "/big", os.O_CREAT | os.O_WRONLY), 200 * 10**6)
    for _ in range(20):
        print("x" * 1_000_000)
    print("epoch 1", flush=True)
time.sleep(600)
"""


@needs_nodes
@pytest.mark.slow("a script that writes without end, fills its run folder and hangs is ended on EC2's nodes, and told")
def test_a_script_that_writes_without_end_and_hangs_is_ended_and_told(start: Start, tmp_path: Path) -> None:
    """The file goes to S3 in parts, as one of 2 GB does, with which moto would be busy for a minute more."""
    (tmp_path / "train.py").write_text(HANGS)

    terminal = start(
        "--nodes", "2", "--rehearse", "--job-name", "job", "--max-restarts", "0", "--max-silence-s", "1",
        "--max-output-mb", "1", "--script", str(tmp_path / "train.py"),
    )  # fmt: skip

    assert terminal.end() == 6, terminal.text
    runs = terminal.folder / "runs/job"
    outcome = json.loads((runs / "job/outcome.json").read_text())
    assert (outcome["state"], outcome["exit_code"]) == ("failed", 6)
    assert "rank 0: train.py printed nothing for 1 s and was ended" in outcome["reason"]
    assert "[0] rank 0: more than 1 MB of output, which is --max-output-mb; the rest is not shown." in terminal.text
    assert "[0]   epoch 1" in terminal.text  # of the last lines
    assert "Traceback" not in terminal.text
    assert (runs / "logs/node-0.log").stat().st_size < 2_000_000
    assert (runs / "big").stat().st_size == 200 * 10**6
    (runs / "big").unlink()  # pytest keeps folders
    assert " 0 left" in terminal.text
    assert terminal.left() == []
