"""infra/examples/lightning: trains, goes on behind its last epoch, and agrees with torchrun about the processes."""

import json
import sys
from pathlib import Path

import pytest

from tests.examples.loading import EXAMPLES, command, load, run
from tests.foreign import FOREIGN, missing_in

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own, about other packages

UNDER_TORCHRUN = {"LOCAL_WORLD_SIZE": "4", "WORLD_SIZE": "8", "RANK": "5"}


def test_it_learns_and_goes_on_behind_its_last_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DDP_RUN_DIR", str(tmp_path))
    example = load("lightning")

    example.main(["--epochs", "1", "--devices", "1"])
    example.main(["--epochs", "2", "--devices", "1"])

    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("[METRIC]")]
    assert [line[1] for line in lines] == ["epoch=1", "epoch=2"]
    first, last = (float(line[3].removeprefix("accuracy=")) for line in lines)
    assert 0.5 < first < last


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (UNDER_TORCHRUN, ("TorchElasticEnvironment", 4, 2)),
        ({"NNODES": "2", "NODE_RANK": "1"}, ("LightningEnvironment", "auto", 2)),
        ({}, ("LightningEnvironment", "auto", 1)),
    ],
    ids=["torchrun", "one process on each node", "alone"],
)
def test_lightning_is_told_of_the_processes_that_there_are(env: dict[str, str], expected: object) -> None:
    found = load("lightning").processes(env, "auto")

    assert (type(found["plugins"]).__name__, found["devices"], found["num_nodes"]) == expected


def in_torchruns_processes(folder: Path) -> list[str]:
    """launch.local of the example, and behind it, as their imports are the same, of what nobody here wrote."""
    example = EXAMPLES / "lightning" / "train.py"
    text = f"{FOREIGN}\nimport runpy\nrunpy.run_path({str(example)!r}, run_name='__main__')\nforeign()\n"
    (folder / "both.py").write_text(text)
    flags = ["--nproc-per-node", "2", "--run-dir", str(folder), "--script", str(folder / "both.py")]
    return [sys.executable, "-m", "launch.local", *flags, "--", "--epochs", "1"]


@pytest.mark.slow("a Lightning training runs in torchrun's processes, and in processes that Lightning starts")
@pytest.mark.parametrize("by", ["torchrun", "one"])
def test_two_processes_train_together_whoever_starts_them(tmp_path: Path, by: str) -> None:
    if by == "torchrun":
        words = in_torchruns_processes(tmp_path)
    else:
        words = command("lightning", tmp_path, "--epochs", "1", "--devices", "2", ranks=1, processes="one")

    code, output = run(words, f"lightning-{by}")

    assert code == 0, output
    assert by == "one" or missing_in(output) == []
    assert "GLOBAL_RANK: 1, MEMBER: 2/2" in output
    (record,) = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert record["epoch"] == 1
    assert record["accuracy"] > 0.5
