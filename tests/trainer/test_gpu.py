"""What the trainer promises, on a GPU.  Each run is a process, so that none is forked from one that has used CUDA."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests import needs
from tests.conftest import Run, trainer_env
from tests.surroundings import USERS_GPUS
from trainer.contract import Exit
from trainer.metrics.log import read_records
from trainer.state.checkpoint import load, read

pytestmark = needs.gpu()

DIGITS = ("--dataset", "digits", "--image-size", "32", "--epochs", "5", "--batch-size", "128")
BATCH_NORM = ("--model", "resnet18", "--image-size", "32", "--synthetic-images", "512", "--batch-size", "64")


@pytest.fixture(autouse=True)
def _see_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    for name, value in USERS_GPUS.items():
        monkeypatch.setenv(name, value)


def records(run: Path) -> list[dict[str, Any]]:
    return read_records(run / "metrics.jsonl")


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load(read(run / "model.pt"))


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_digits_are_learned_in_every_precision(precision: str, train: Run, tmp_path: Path) -> None:
    ended = train(*DIGITS, "--precision", precision)
    assert ended.returncode == 0, ended.stderr
    last = records(tmp_path / "run")[-1]
    assert last["eval_top1"] > 0.9
    assert (last["precision"], last["device"][:6]) == (precision, "NVIDIA")


@pytest.mark.parametrize("flags", [
    ("--strategy", "ddp"),
    ("--strategy", "ddp", "--comm-hook", "bf16"),
    ("--strategy", "ddp", "--comm-hook", "powersgd"),
    ("--strategy", "fsdp"),
    ("--strategy", "dp"),
    ("--compile",),
    ("--compile", "--compile-mode", "reduce-overhead"),
    ("--accumulate", "2", "--clip-norm", "1", "--ema-decay", "0.99"),
    ("--optimizer", "muon"),
    ("--optimizer", "lars"),
    ("--optimizer", "adamw"),
], ids=" ".join)  # fmt: skip
def test_digits_are_learned_with(flags: tuple[str, ...], train: Run, tmp_path: Path) -> None:
    """One rank: its collectives go through NCCL all the same."""
    ended = train(*DIGITS, *flags, "--precision", "bf16", env=ALONE if "--strategy" in flags else None)
    assert ended.returncode == 0, ended.stderr
    assert records(tmp_path / "run")[-1]["eval_top1"] > 0.7


ALONE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
         "MASTER_PORT": "29511"}  # fmt: skip


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_a_stopped_run_resumes_bit_for_bit_where_deterministic(precision: str, train: Run, tmp_path: Path) -> None:
    flags = (*BATCH_NORM, "--precision", precision, "--deterministic", "--ema-decay", "0.9", "--log-every", "1")
    env = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    assert train(*flags, "--run-dir", tmp_path / "unbroken", env=env).returncode == 0
    stopped = train(*flags, module="tests.trainer.odd_rank", env=env | {"STOP_AT": "11"})
    assert stopped.returncode == 75, stopped.stderr
    resumed = train(*flags, env=env)
    assert resumed.returncode == 0, resumed.stderr
    expected = weights(tmp_path / "unbroken")
    assert all(torch.equal(weight, expected[name]) for name, weight in weights(tmp_path / "run").items())


def test_deterministic_needs_nothing_set_around_it(train: Run, tmp_path: Path) -> None:
    """cuBLAS wants CUBLAS_WORKSPACE_CONFIG for it: https://docs.nvidia.com/cuda/cublas/#results-reproducibility"""
    runs = [tmp_path / name for name in ("a", "b")]
    for run in runs:
        ended = train("--model", "vgg11", "--image-size", "32", "--deterministic", "--run-dir", run)
        assert ended.returncode == 0, ended.stderr
    first, second = (weights(run) for run in runs)
    assert all(torch.equal(weight, second[name]) for name, weight in first.items())


def test_the_phases_of_a_step_are_not_longer_than_the_step(train: Run, tmp_path: Path) -> None:
    flags = (*BATCH_NORM, "--synthetic-images", "6400", "--precision", "bf16", "--epochs", "3")
    assert train(*flags).returncode == 0
    for record in records(tmp_path / "run"):
        phases = sum(record[f"{name}_ms"] for name in ("forward", "backward", "optimizer"))
        assert 0 < phases <= record["step_ms"] * 1.05, record
        assert record["peak_memory_mib"] > 10


def test_too_large_a_batch_is_an_error_that_names_the_flag(train: Run) -> None:
    flags = ("--model", "resnet18", "--image-size", "224", "--batch-size", "60000", "--synthetic-images", "60000")
    ended = train(*flags, "--precision", "bf16", "--max-steps", "1")
    assert ended.returncode == Exit.TRAINING
    assert "out of GPU memory" in ended.stderr
    assert "Halve --batch-size" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_sound_machine_passes_the_health_check(train: Run) -> None:
    ended = train("--health-check")
    assert ended.returncode == 0, ended.stderr
    assert "health check passed" in ended.stdout


def test_a_run_of_a_gpu_predicts_on_a_cpu(train: Run, tmp_path: Path) -> None:
    assert train(*DIGITS, "--precision", "bf16").returncode == 0
    image = tmp_path / "black.png"
    Image.new("L", (32, 32)).save(image)
    predict = [sys.executable, "-m", "trainer.predict", tmp_path / "run", image]
    ended = subprocess.run(
        predict, env=trainer_env({"CUDA_VISIBLE_DEVICES": ""}), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(str(image))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of JPEGs of two classes, one darker than the other, and large enough to be streamed."""
    rng = np.random.default_rng(0)
    for half, count in (("train", 48), ("val", 8)):
        for label, name in enumerate(("dark", "light")):
            (tmp_path / "photos" / half / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(100 * label, 100 * label + 100, (15, 20, 3), dtype=np.uint8)
                image = Image.fromarray(pixels).resize((320, 240))
                image.save(tmp_path / "photos" / half / name / f"{number}.jpg", quality=95)
    return tmp_path / "photos"


@pytest.mark.parametrize("flags", [(), ("--decode", "gpu"), ("--image-size-start", "32")], ids=" ".join)
def test_photos_are_learned_with(flags: tuple[str, ...], photos: Path, train: Run, tmp_path: Path) -> None:
    ended = train("--model", "resnet18", "--dataset", "imagenet", "--data-dir", photos, "--image-size", "64",
                  "--epochs", "6", "--batch-size", "16", *flags)  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert records(tmp_path / "run")[-1]["eval_top1"] > 0.9


def test_a_gpu_decodes_what_a_cpu_decodes(photos: Path) -> None:
    program = f"""
import pathlib, torch
from trainer.datasets.order import middle_crop
from trainer.datasets.rows import GpuRows, check_gpu_decodes
from trainer.datasets.base import IMAGENET
from trainer.datasets.decode import Normaliser
from trainer.datasets.order import View
from trainer.datasets.rows import ByteRows
device = torch.device("cuda")
check_gpu_decodes(device)
normalise = Normaliser(IMAGENET, 64, device, True)
made = []
for kind in (GpuRows, ByteRows):
    rows = kind(8, 64, normalise, device)
    for row, path in enumerate(sorted(pathlib.Path({str(photos)!r}).rglob("*.jpg"))[:8]):
        rows.put(row, path.read_bytes(), View(middle_crop, row % 2 == 0))
    assert rows.settle() == {{}}
    made.append(rows.images())
print(float((made[0] - made[1]).abs().mean()))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False,
                           env=trainer_env())  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert float(ended.stdout) < 0.03  # two levels of 255: another IDCT, and nothing rounded in between


def test_tune_finds_a_batch_and_says_how_busy_the_gpu_was() -> None:
    command = [sys.executable, "-m", "trainer.tune", "--model", "cnn", "--dataset", "synthetic", "--image-size", "32",
               "--trial-s", "3", "--batch-size-from", "256", "--batch-size-to", "512"]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=trainer_env())
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] in ("--batch-size 256", "--batch-size 512")
    assert "%" in ended.stdout.splitlines()[1].split()[-1]
