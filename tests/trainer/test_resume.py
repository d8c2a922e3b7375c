"""A run that is stopped and started again ends where an unbroken one ends."""

import json
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from tests.conftest import Run
from trainer.metrics.log import read_records
from trainer.state.checkpoint import load, read


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load(read(run / "model.pt"))


def newest(run: Path) -> dict[str, Any]:
    return load(read(max((run / "checkpoints").glob("epoch*.pt"))))


def test_a_finished_run_started_again_trains_no_more(train: Run, tmp_path: Path) -> None:
    first = train()
    again = train()
    assert (first.returncode, again.returncode) == (0, 0)
    assert "[METRIC]" not in again.stdout
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2


def test_a_line_of_an_epoch_that_is_done_again_is_replaced(train: Run, tmp_path: Path) -> None:
    train("--epochs", "1", "--schedule", "constant")
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"epoch": 2, "train_loss": 99.0}) + '\n{"epoch": 3, "tra')
    train("--epochs", "2", "--schedule", "constant")
    records = read_records(tmp_path / "run" / "metrics.jsonl")
    assert [record["epoch"] for record in records] == [1, 2]
    assert records[1]["train_loss"] < 99


def lines(run: Path) -> list[tuple[int, int, float]]:
    return [(r["epoch"], r["updates"], r["learning_rate"]) for r in read_records(run / "metrics.jsonl")]


def test_a_run_that_max_steps_ended_goes_on_inside_its_epoch(train: Run, tmp_path: Path) -> None:
    train("--run-dir", tmp_path / "unbroken", "--synthetic-images", "72", "--eval-every", "2")
    ended = train("--synthetic-images", "72", "--max-steps", "5")
    assert ended.returncode == 0, ended.stderr
    assert [line[:2] for line in lines(tmp_path / "run")] == [(1, 5)]
    again = train("--synthetic-images", "72", "--max-steps", "5")
    assert "[METRIC]" not in again.stdout
    assert [line[:2] for line in lines(tmp_path / "run")] == [(1, 5)], "nothing was trained, so the line stays"
    more = train("--synthetic-images", "72")
    assert "resuming at epoch 1, 40 images into it, after 5 updates" in more.stdout
    assert lines(tmp_path / "run") == lines(tmp_path / "unbroken")
    expected = weights(tmp_path / "unbroken")
    assert all(torch.equal(weight, expected[name]) for name, weight in weights(tmp_path / "run").items())


def test_an_epoch_does_not_go_on_with_another_number_of_images(train: Run) -> None:
    train("--synthetic-images", "72", "--max-steps", "5")
    refused = train("--synthetic-images", "64")
    assert refused.returncode == 2
    assert "inside an epoch of 72 training images, and now there are 64" in refused.stderr


def test_a_run_that_stops_at_an_epochs_end_goes_on_with_its_evaluation_and_rate(train: Run, tmp_path: Path) -> None:
    train("--run-dir", tmp_path / "unbroken")
    train("--run-dir", tmp_path / "run", "--checkpoint-every-s", "1e-6", "--keep-checkpoints", "100")
    for path in (tmp_path / "run" / "checkpoints").glob("*.pt*"):
        if not path.name.startswith("epoch-0000"):
            path.unlink()
    newest_left = newest(tmp_path / "run")["progress"]
    assert (newest_left["epoch"], newest_left["images"]) == (0, 64), "all of epoch 1 is trained, and not evaluated"
    resumed = train()
    assert resumed.returncode == 0, resumed.stderr
    assert lines(tmp_path / "run") == lines(tmp_path / "unbroken")


def test_a_checkpoint_moves_between_strategies(train: Run) -> None:
    flags = ("--optimizer", "adamw", "--schedule", "constant")
    for epochs, strategy in enumerate(("ddp", "fsdp", "ddp"), start=1):
        done = train("--strategy", strategy, "--epochs", epochs, *flags, ranks=2)
        assert done.returncode == 0, done.stderr
    assert "resuming at epoch 3" in done.stdout


def test_a_checkpoint_of_another_model_is_refused(train: Run) -> None:
    train("--epochs", "1")
    other = train("--model", "resnet18", "--epochs", "2")
    assert other.returncode == 2
    assert "was made with --model cnn, and this run is with --model resnet18" in other.stderr


def test_changed_settings_hold_after_a_resume(train: Run, tmp_path: Path) -> None:
    train("--epochs", "1", "--schedule", "constant", "--weight-decay", "0.1")
    more = train("--epochs", "2", "--schedule", "constant", "--weight-decay", "0.2", "--momentum", "0.5")
    assert more.returncode == 0, more.stderr
    group = newest(tmp_path / "run")["optimizer"]["param_groups"][0]
    assert (group["weight_decay"], group["momentum"]) == (0.2, 0.5)


def test_a_checkpoint_goes_on_with_the_same_classes_by_name(train: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for half in ("train", "val"):
        for label in ("caf\u00e9", "dog"):
            (data / half / label).mkdir(parents=True)
            for number in range(8):
                Image.new("L", (8, 8), 30 * number).save(data / half / label / f"{number}.png")
    flags = ("--dataset", "imagefolder", "--data-dir", data, "--batch-size", "8", "--schedule", "constant")
    train(*flags, "--epochs", "1")

    for half in ("train", "val"):
        (data / half / "caf\u00e9").rename(data / half / "cafe\u0301")
    same = train(*flags, "--epochs", "2")
    for half in ("train", "val"):
        (data / half / "cafe\u0301").rename(data / half / "eel")
    other = train(*flags, "--epochs", "3")

    assert same.returncode == 0, same.stderr
    assert (other.returncode, "was made with other classes, or in another order" in other.stderr) == (2, True)


def test_no_resume_starts_afresh_in_the_same_folder(train: Run, tmp_path: Path) -> None:
    train("--epochs", "2", "--schedule", "constant")
    afresh = train("--epochs", "1", "--schedule", "constant", "--no-resume")
    assert afresh.returncode == 0, afresh.stderr
    assert newest(tmp_path / "run")["progress"]["epoch"] == 1
    assert [record["epoch"] for record in read_records(tmp_path / "run" / "metrics.jsonl")] == [1]


def test_weights_of_a_finished_run_start_another_which_goes_on_without_them(train: Run, tmp_path: Path) -> None:
    train("--epochs", "1")
    start = tmp_path / "start.pt"
    start.write_bytes((tmp_path / "run" / "model.pt").read_bytes())
    flags = ("--init-from", start, "--run-dir", tmp_path / "tuned", "--schedule", "constant", "--lr", "1e-9",
             "--weight-decay", "0")  # fmt: skip
    train(*flags, "--epochs", "1")
    start.unlink()
    more = train(*flags, "--epochs", "2")
    assert more.returncode == 0, more.stderr
    assert "resuming at epoch 2" in more.stdout
    before, after = weights(tmp_path / "run"), weights(tmp_path / "tuned")
    assert all(torch.allclose(after[name], weight, atol=1e-6) for name, weight in before.items())
