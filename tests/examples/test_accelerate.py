"""infra/examples/accelerate: trains, goes on behind its last epoch, and its processes train together."""

import json
from pathlib import Path

import pytest
import torch

from tests.examples.loading import load, undisturbed

pytestmark = pytest.mark.filterwarnings("ignore")  # Accelerate's own, about other packages


def epochs(text: str) -> list[str]:
    return [line.split()[1] for line in text.splitlines() if line.startswith("[METRIC]")]


def test_it_learns_and_goes_on_behind_its_last_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DDP_RUN_DIR", str(tmp_path / "broken"))
    example = load("accelerate")

    example.main(["--epochs", "1"])
    example.main(["--epochs", "2"])
    assert epochs(capsys.readouterr().out) == ["epoch=1", "epoch=2"]
    assert sorted(path.name for path in (tmp_path / "broken").iterdir()) == ["epoch-2", "newest"]

    monkeypatch.setenv("DDP_RUN_DIR", str(tmp_path / "unbroken"))
    example.main(["--epochs", "2"])
    accuracy = float(capsys.readouterr().out.splitlines()[-1].rpartition("accuracy=")[2])
    assert accuracy > 0.85
    files = [tmp_path / name / "epoch-2/optimizer.bin" for name in ("broken", "unbroken")]
    broken, unbroken = (torch.load(file)["state"][0]["exp_avg"] for file in files)
    assert torch.equal(broken, unbroken)


def test_a_checkpoint_that_was_not_finished_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DDP_RUN_DIR", str(tmp_path))
    example = load("accelerate")
    example.main(["--epochs", "1"])
    (tmp_path / "epoch-2").mkdir()
    (tmp_path / "epoch-2/model.safetensors").write_bytes(b"half")

    example.main(["--epochs", "2"])

    assert epochs(capsys.readouterr().out) == ["epoch=1", "epoch=2"]


# Accelerate under launch.local's torchrun is tried in test_lightning.py, by its own distributed test.
@pytest.mark.slow("two processes train one model with Accelerate, on the CPU too")
def test_two_processes_train_together(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    undisturbed("accelerate", folder, "--epochs", "1")

    (record,) = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert record["accuracy"] * 359 == pytest.approx(round(record["accuracy"] * 359), abs=1e-3)  # each image once
    assert {path.name for path in (folder / "epoch-1").glob("random*")} == {
        "random_states_0.pkl",
        "random_states_1.pkl",
    }
