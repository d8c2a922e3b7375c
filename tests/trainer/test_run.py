"""Whole runs: every way to train that settings can ask for, and what a worker's death does."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from tests.conftest import SMALL, Run, trainer_env
from tests.processes import processes_with
from trainer.config import TrainConfig
from trainer.distributed.ranks import Ranks
from trainer.errors import SettingsError, TrainingError
from trainer.metrics.log import read_records
from trainer.process.machine import translate_torch_errors


@pytest.mark.parametrize(
    "flags",
    [
        ("--precision", "bf16"),
        ("--precision", "fp16", "--clip-norm", "1"),
        ("--optimizer", "muon", "--ema-decay", "0.9"),
        ("--optimizer", "adamw", "--schedule", "onecycle", "--lr-scaling", "sqrt"),
        ("--dataset", "digits", "--schedule", "multistep", "--milestones", "1"),
        ("--model", "squeezenet1_0", "--image-size", "32", "--accumulate", "2", "--lr", "0.001"),
    ],
    ids=lambda flags: " ".join(flags),
)
def test_training_runs_with(flags: tuple[str, ...], train: Run, tmp_path: Path) -> None:
    done = train(*flags)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    records = read_records(tmp_path / "run" / "metrics.jsonl")
    assert [record["epoch"] for record in records] == [1, 2]
    assert all(0 < record["train_loss"] < 5 for record in records)


@pytest.mark.parametrize(
    "flags",
    [("--strategy", "fsdp", "--precision", "bf16"), ("--strategy", "fsdp", "--optimizer", "adamw", "--fused")],
    ids=lambda flags: " ".join(flags),
)  # fmt: skip
def test_two_ranks_train_with(flags: tuple[str, ...], train: Run, tmp_path: Path) -> None:
    done = train(*flags, ranks=2)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert [record["world_size"] for record in read_records(tmp_path / "run" / "metrics.jsonl")] == [2, 2]


def test_the_batch_ramp_grows_the_global_batch(train: Run, tmp_path: Path) -> None:
    done = train("--batch-ramp", "0:16,1:32", "--epochs", "3", ranks=2)
    assert done.returncode == 0, done.stderr
    records = read_records(tmp_path / "run" / "metrics.jsonl")
    assert [(record["global_batch"], record["updates"]) for record in records] == [(16, 4), (32, 6), (32, 8)]


def test_max_steps_ends_a_run_inside_an_epoch(train: Run, tmp_path: Path) -> None:
    done = train("--max-steps", "3", "--plot")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "run" / "curves.png").exists()  # there is no curve, and matplotlib takes a second
    (record,) = read_records(tmp_path / "run" / "metrics.jsonl")
    assert (record["updates"], record["eval_images"] > 0) == (3, True)


@pytest.mark.parametrize(("halves", "half", "images"), [("valid test", "valid", 4), ("test", "test", 6)])
def test_output_and_records_name_the_half_that_was_scored(
    halves: str, half: str, images: int, train: Run, tmp_path: Path
) -> None:
    for name in ("train", *halves.split()):
        for label, shade in (("cat", 0), ("dog", 255)):
            (folder := tmp_path / "data" / name / label).mkdir(parents=True)
            for number in range({"train": 8, "valid": 2, "test": 3}[name]):
                Image.new("L", (8, 8), shade).save(folder / f"{number}.png")

    done = train("--dataset", "imagefolder", "--data-dir", tmp_path / "data", "--epochs", "1", "--batch-size", "8")

    (record,) = read_records(tmp_path / "run" / "metrics.jsonl")
    assert done.returncode == 0, done.stderr
    assert (record["eval_split"], record["eval_images"]) == (half, images)
    assert f"of 8 px, 2 classes, evaluated on {half}\n" in done.stdout
    assert f"  {half} accuracy " in done.stdout
    assert f"done: best {half} accuracy " in done.stdout


@pytest.mark.slow("a compiled training has the same losses")
def test_compiled_training_gives_the_same_losses(train: Run, start_trainer: Run, tmp_path: Path) -> None:
    plain = train("--max-steps", "4")
    # Without processes that each import torch to compile, and programs that try what the processor can do.
    quick = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_VEC_ISA_OK": "1"}
    env = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), **quick}
    where = ("--run-dir", tmp_path / "compiled")
    compiled = start_trainer("--max-steps", "4", "--compile", *where, timeout_s=300, env=env)
    assert (plain.returncode, compiled.returncode) == (0, 0), compiled.stderr
    losses = [read_records(tmp_path / name / "metrics.jsonl")[0]["train_loss"] for name in ("run", "compiled")]
    assert losses[1] == pytest.approx(losses[0], abs=1e-4)


@pytest.mark.slow("torchrun restarts a killed worker, which resumes from the newest checkpoint")
def test_a_killed_worker_is_restarted_and_goes_on_from_the_newest_checkpoint(tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "trainer.torchrun", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"),
        *("-m", "trainer", *SMALL, "--epochs", "20", "--run-dir", str(tmp_path), "--probe-steps", "0"),
    ]
    mark = f"TEST_MARK={tmp_path}"
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=trainer_env({"TEST_MARK": str(tmp_path)}),
    )
    assert process.stdout is not None
    next(line for line in process.stdout if line.startswith("epoch 3/"))
    workers = [pid for pid in processes_with(mark) if pid != process.pid]
    os.kill(max(workers), signal.SIGKILL)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert "resuming at epoch" in out
    assert [record["epoch"] for record in read_records(tmp_path / "metrics.jsonl")] == list(range(1, 21))


@pytest.mark.parametrize(
    ("raised", "translated", "words"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), TrainingError, "cnn with 32 images per pass .* 24 GiB. Halve"),
        (RuntimeError("adaptive_avg_pool2d_backward_cuda does not have a deterministic implementation"), SettingsError,
         "--deterministic: adaptive_avg_pool2d_backward_cuda has no deterministic kernel"),
    ],
)  # fmt: skip
def test_torchs_error_about_a_users_choice_is_translated(
    raised: Exception, translated: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (0, 24 * 2**30))
    config = TrainConfig(model="cnn", global_batch_size=64)
    with pytest.raises(translated, match=words), translate_torch_errors(config, Ranks(world_size=2)):
        raise raised
