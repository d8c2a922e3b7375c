"""infra/examples/lightning: trains, goes on behind its last epoch, and agrees with torchrun about the processes."""

import json
from pathlib import Path

import pytest

from tests.examples.loading import command, load, run

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
def test_lightning_gets_the_processes_that_there_are(env: dict[str, str], expected: object) -> None:
    found = load("lightning").processes(env, "auto")

    assert (type(found["plugins"]).__name__, found["devices"], found["num_nodes"]) == expected


@pytest.mark.slow("a Lightning training runs in processes that Lightning starts")
def test_two_processes_that_lightning_starts_train_together(tmp_path: Path) -> None:
    words = command("lightning", tmp_path, "--epochs", "1", "--devices", "2", ranks=1, processes="one")

    code, output = run(words, "lightning-one")

    assert code == 0, output
    assert "GLOBAL_RANK: 1, MEMBER: 2/2" in output
    (record,) = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert record["epoch"] == 1
    assert record["accuracy"] > 0.5
