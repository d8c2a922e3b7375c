"""Where weights come from, and what is requested of a data set."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn
from torch.amp import GradScaler
from torch.nn.functional import cross_entropy

from tests.conftest import Run
from trainer.config import TrainConfig
from trainer.datasets.base import UNREADABLE
from trainer.errors import SettingsError
from trainer.loop import StepContext, train_epoch
from trainer.metrics.counters import Stopwatch, Totals
from trainer.metrics.log import read_records
from trainer.optimizers.precision import Stepper
from trainer.state.checkpoint import save_weights
from trainer.training import _load_weights, criterion_of, guard_of, read_weights

WEIGHTS = {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}


def refused(path: Path, model: nn.Module) -> str:
    with pytest.raises(SettingsError) as error:
        _load_weights(model, TrainConfig(model="cnn", init_from=path))
    sentence = str(error.value)
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize(
    "save",
    [
        lambda path: save_weights(path, WEIGHTS),
        lambda path: torch.save(WEIGHTS, path),
        lambda path: save_weights(path, {"format": 1, "model": WEIGHTS, "optimizer": {}}),
    ],
    ids=["a finished run", "elsewhere, without a digest", "a checkpoint"],
)
def test_weights_are_read(save: Callable[[Path], object], tmp_path: Path) -> None:
    save(tmp_path / "model.pt")
    found = read_weights(tmp_path / "model.pt")
    assert {name: weight.tolist() for name, weight in found.items()} == {
        name: weight.tolist() for name, weight in WEIGHTS.items()
    }


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file or directory"),
        (b"", "no weights that torch can read"),
        (b"PK\x03\x04garbage", "no weights that torch can read"),
        ([1, 2], "no named weights"),
        ({"weight": torch.ones(5, 4), "bias": torch.zeros(5)}, "--image-size"),
        (WEIGHTS | {"bias": torch.tensor([0.0, float("inf")])}, "not finite"),
    ],
    ids=["missing", "empty", "garbage", "a list", "another shape", "no numbers"],
)
def test_what_holds_no_weights_of_the_model_is_one_sentence(content: object, why: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    sentence = refused(path, nn.Linear(3, 2))
    assert sentence.startswith(f"--init-from {path}")
    assert why in sentence


def test_a_digest_that_lies_beside_is_checked(tmp_path: Path) -> None:
    save_weights(tmp_path / "model.pt", WEIGHTS)
    torch.save({}, tmp_path / "model.pt")
    assert "does not match its digest" in refused(tmp_path / "model.pt", nn.Linear(3, 2))


BAD = ("train/a/1.jpg", "train/b/2.jpg", "val/a/0.jpg")


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_mean_over_readable_images(smoothing: float) -> None:
    logits = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    labels = torch.tensor([0, UNREADABLE, 2, 3, UNREADABLE, 1])
    criterion = criterion_of(TrainConfig(max_bad_images=2, label_smoothing=smoothing))

    torch.testing.assert_close(criterion(logits, labels), cross_entropy(logits, labels, label_smoothing=smoothing))

    nothing = criterion(logits, torch.full((6,), UNREADABLE))
    nothing.backward()
    assert nothing.item() == 0
    assert logits.grad is not None
    assert not logits.grad.any()


def test_a_batch_without_a_readable_image_leaves_no_trace_in_batch_norm() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 3))
    config = TrainConfig(max_bad_images=2)
    stepper = Stepper(torch.optim.SGD(model.parameters(), lr=0.1), model.parameters(), GradScaler("cpu", enabled=False))
    step_context = StepContext(model, criterion_of(config), stepper, nullcontext, nullcontext, guard_of(config, model))

    def train(*labels: int) -> list[torch.Tensor]:
        batch = torch.randn(2, 3, 8, 8), torch.tensor(labels)
        device = torch.device("cpu")
        list(train_epoch(step_context, [batch], lambda step: 0.1, Totals(device), Stopwatch(device)))
        return [buffer.clone() for buffer in model.buffers()]

    before = train(0, UNREADABLE)
    assert all(torch.equal(*pair) for pair in zip(before, train(UNREADABLE, UNREADABLE), strict=True))
    assert not any(torch.equal(*pair) for pair in zip(before, train(2, 1), strict=True))


def folder(root: Path) -> Path:
    """A set of 16 images that is streamed, of which BAD cannot be read."""
    for half, count in (("train", 6), ("val", 2)):
        for label, shade in (("a", 0), ("b", 200)):
            (root / half / label).mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (80, 80), (shade + number,) * 3).save(root / half / label / f"{number}.jpg")
    for name in BAD:
        (root / name).write_bytes(b"")
    return root


def test_batches_without_a_readable_image_are_skipped(train: Run, tmp_path: Path) -> None:
    """One image a rank and pass: a bad one is a batch of its own."""
    flags = ("--dataset", "imagefolder", "--data-dir", folder(tmp_path / "set"), "--image-size", "72", "--lr", "0.01",
             "--batch-size", "1", "--eval-batch-size", "1", "--probe-steps", "0", "--epochs", "1")  # fmt: skip

    done = train(*flags, "--max-bad-images", "3", ranks=2)

    assert done.returncode == 0, done.stderr
    (record,) = read_records(tmp_path / "run" / "metrics.jsonl")
    assert (record["bad_images"], record["eval_images"]) == (3, 3)
    assert 0 < record["train_loss"] < 20


@pytest.mark.parametrize("half", ["train", "val"])
def test_a_half_without_a_readable_image_is_refused(half: str, train: Run, tmp_path: Path) -> None:
    data = folder(tmp_path / "set")
    for path in (data / half).rglob("*.jpg"):
        path.write_bytes(b"")

    done = train("--dataset", "imagefolder", "--data-dir", data, "--image-size", "72", "--batch-size", "4",
                 "--max-bad-images", "100", "--epochs", "1")  # fmt: skip

    assert done.returncode == 3
    part = "an epoch of training" if half == "train" else "the evaluation"
    assert f"error: no image of {part} could be read" in done.stderr
