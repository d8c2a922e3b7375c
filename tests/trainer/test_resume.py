"""A run that is stopped and started again ends where an unbroken one ends."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from PIL import Image

from tests.conftest import Run
from trainer.metrics.log import read_records
from trainer.state.checkpoint import load, read

IMAGES, BATCH = 96, 8
# Batch norm, augmentation, momentum, schedule and EMA all have state that must come back.
SETTINGS = (
    "--model", "shufflenet_v2_x0_5", "--dataset", "imagefolder", "--image-size", "32", "--epochs", "2",
    "--batch-size", str(BATCH), "--warmup-epochs", "0.5", "--ema-decay", "0.9", "--log-every", "1",
)  # fmt: skip


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small image folder of noise: four classes in train/ and test/."""
    folder, noise = tmp_path_factory.mktemp("images"), numpy.random.default_rng(0)
    for part, count in (("train", IMAGES // 4), ("test", 8)):
        for label in "abcd":
            (folder / part / label).mkdir(parents=True)
            for number in range(count):
                pixels = noise.integers(0, 256, (8, 8, 3), dtype=numpy.uint8)
                Image.fromarray(pixels).save(folder / part / label / f"{number}.png")
    return folder


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load(read(run / "model.pt"))


def newest(run: Path) -> dict[str, Any]:
    return load(read(max((run / "checkpoints").glob("epoch*.pt"))))


@pytest.mark.slow("one rank, or two, stopped in mid-epoch resume bit for bit, each in a process of its own")
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_stopped_mid_epoch_and_resumed_is_bit_identical(
    ranks: int, images: Path, tmp_path: Path, train: Run
) -> None:
    train = partial(train, *SETTINGS, "--data-dir", images, ranks=ranks)
    unbroken, broken = tmp_path / "unbroken", tmp_path / "run"
    whole = train("--run-dir", unbroken)
    assert whole.returncode == 0, whole.stderr
    in_epoch_two = IMAGES // BATCH // ranks + 3
    stopped = train(module="tests.trainer.odd_rank", env={"STOP_AT": str(in_epoch_two)})
    assert stopped.returncode == 75, stopped.stderr
    assert "stopped on request in epoch 2" in stopped.stderr
    progress = newest(broken)["progress"]
    assert progress["epoch"] == 1
    assert 0 < progress["images"] < IMAGES, "the stop must fall inside an epoch"
    resumed = train()
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming at epoch 2" in resumed.stdout
    expected = weights(unbroken)
    assert all(torch.equal(weight, expected[name]) for name, weight in weights(broken).items())
    for was, now in zip(*(read_records(folder / "metrics.jsonl") for folder in (unbroken, broken)), strict=True):
        for name in ("epoch", "updates", "train_loss", "train_top1", "eval_loss", "eval_top1", "learning_rate"):
            assert now[name] == was[name], name


def test_a_finished_run_started_again_trains_no_more(train: Run, tmp_path: Path) -> None:
    first = train()
    again = train()
    assert (first.returncode, again.returncode) == (0, 0)
    assert "[METRIC]" not in again.stdout
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2


def test_a_strangers_run_is_gone_on_with_and_what_its_links_lead_to_stays(train: Run, tmp_path: Path) -> None:
    """Each of its files is a link; they could lead to any file of whoever goes on with the run."""
    assert train().returncode == 0
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    files = [path for path in sorted(run.rglob("*")) if path.is_file()]
    for number, path in enumerate(files):
        elsewhere.mkdir(exist_ok=True)
        path.rename(elsewhere / f"{number}")
        path.symlink_to(elsewhere / f"{number}")
    before = {path.name: path.read_bytes() for path in elsewhere.iterdir()}

    again = train("--epochs", "3")

    assert again.returncode == 0, again.stderr
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 3
    assert len(before) > 8
    assert {path.name: path.read_bytes() for path in elsewhere.iterdir()} == before


def test_more_epochs_go_on_from_the_last(train: Run, tmp_path: Path) -> None:
    train("--schedule", "constant")
    more = train("--epochs", "3", "--schedule", "constant")
    assert more.returncode == 0, more.stderr
    assert [record["epoch"] for record in read_records(tmp_path / "run" / "metrics.jsonl")] == [1, 2, 3]


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


@pytest.mark.parametrize("strategy", ["auto", "fsdp"])
def test_a_run_that_stops_at_an_epochs_end_goes_on_with_its_evaluation_and_rate(
    strategy: str, train: Run, tmp_path: Path
) -> None:
    train = partial(train, "--strategy", strategy)
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


def test_resuming_does_not_need_the_weights_that_the_run_started_from(train: Run, tmp_path: Path) -> None:
    train("--epochs", "1")
    start = tmp_path / "start.pt"
    start.write_bytes((tmp_path / "run" / "model.pt").read_bytes())
    flags = ("--init-from", start, "--run-dir", tmp_path / "tuned", "--schedule", "constant")
    train(*flags, "--epochs", "1")
    start.unlink()
    more = train(*flags, "--epochs", "2")
    assert more.returncode == 0, more.stderr
    assert "resuming at epoch 2" in more.stdout


def test_fewer_ranks_go_on_with_the_same_images(train: Run, tmp_path: Path) -> None:
    """Elastic: two ranks are stopped, one goes on; nothing is lost and every epoch is whole."""
    two = train("--epochs", "1", "--schedule", "constant", ranks=2)
    assert two.returncode == 0, two.stderr
    one = train("--epochs", "2", "--schedule", "constant")
    assert one.returncode == 0, one.stderr
    assert [(r["world_size"], r["updates"]) for r in read_records(tmp_path / "run" / "metrics.jsonl")] == [
        (2, 4),
        (1, 12),
    ]


@pytest.mark.parametrize("order", [("ddp", "fsdp"), ("fsdp", "ddp")])
def test_a_checkpoint_moves_between_strategies(order: tuple[str, str], train: Run) -> None:
    for epochs, strategy in enumerate(order, start=1):
        done = train(
            "--strategy", strategy, "--epochs", epochs, "--optimizer", "adamw", "--schedule", "constant", ranks=2
        )
        assert done.returncode == 0, done.stderr
    assert "resuming at epoch 2" in done.stdout


def test_a_checkpoint_of_another_model_is_refused(train: Run) -> None:
    train("--epochs", "1")
    other = train("--model", "resnet18", "--epochs", "2")
    assert other.returncode == 2
    assert "was made with --model cnn, and this run is with --model resnet18" in other.stderr


def test_weights_of_a_finished_run_start_another(train: Run, tmp_path: Path) -> None:
    train("--epochs", "1")
    tuned = train("--init-from", tmp_path / "run" / "model.pt", "--run-dir", tmp_path / "tuned", "--lr", "1e-9",
                  "--weight-decay", "0")  # fmt: skip
    assert tuned.returncode == 0, tuned.stderr
    before, after = weights(tmp_path / "run"), weights(tmp_path / "tuned")
    assert all(torch.allclose(after[name], weight, atol=1e-6) for name, weight in before.items())


def test_changed_settings_hold_after_a_resume(train: Run, tmp_path: Path) -> None:
    train("--epochs", "1", "--schedule", "constant", "--weight-decay", "0.1")
    more = train("--epochs", "2", "--schedule", "constant", "--weight-decay", "0.2", "--momentum", "0.5")
    assert more.returncode == 0, more.stderr
    group = newest(tmp_path / "run")["optimizer"]["param_groups"][0]
    assert (group["weight_decay"], group["momentum"]) == (0.2, 0.5)


def test_a_run_goes_on_in_another_precision(train: Run) -> None:
    train("--epochs", "1", "--schedule", "constant")
    more = train("--epochs", "2", "--schedule", "constant", "--precision", "fp16")
    assert more.returncode == 0, more.stderr


def test_a_checkpoint_with_other_classes_is_refused_in_words(train: Run) -> None:
    train("--epochs", "1")
    more = train("--epochs", "2", "--synthetic-classes", "7")
    assert (more.returncode, "Traceback" in more.stderr) == (2, False)
    assert "was made with other classes" in more.stderr


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
