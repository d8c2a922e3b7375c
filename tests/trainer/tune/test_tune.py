import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from trainer.config import TrainConfig
from trainer.contract import Exit
from trainer.errors import DataError, MachineError, SettingsError
from trainer.tune.__main__ import main
from trainer.tune.choose import Trial, best, next_batch_size, worker_counts
from trainer.tune.trial import run_trial

DIGITS = TrainConfig(dataset="digits", device="cpu", threads=1, workers=1, batch_size=8, precision="fp32")


def tried(rates: dict[int, float | None]) -> list[Trial]:
    return [Trial(size, 2, rate) for size, rate in rates.items()]


@pytest.mark.parametrize(
    ("rates", "following"),
    [
        ({}, 16),
        ({16: 100.0}, 32),
        ({16: 100.0, 32: 101.0}, 64),  # one doubling without a gain may be chance
        ({16: 100.0, 32: 101.0, 64: 101.5}, None),
        ({16: 100.0, 32: 180.0, 64: 300.0, 128: 400.0}, None),  # the largest allowed
        ({16: 100.0, 32: 180.0, 64: None}, 48),
        ({16: 100.0, 32: 180.0, 64: None, 48: 200.0}, None),
        ({16: None}, 8),
        ({16: None, 8: 50.0}, 12),
    ],
)
def test_batches_are_doubled_until_one_does_not_fit_or_brings_nothing(
    rates: dict[int, float | None], following: int | None
) -> None:
    assert next_batch_size(tried(rates), first=16, largest=128) == following


def test_no_batch_is_tried_that_is_larger_than_the_training_set() -> None:
    """Of 200 images, as after 128 of them: that trial would be refused, and nothing printed."""
    last = Trial(128, 2, 400.0, images=200)
    assert next_batch_size([*tried({32: 100.0, 64: 200.0}), last], first=16, largest=4096) is None
    assert next_batch_size([replace(last, images=256)], first=16, largest=4096) == 256


def test_of_what_is_as_fast_the_smallest_is_best() -> None:
    assert best(tried({16: 80.0, 32: 99.0, 64: 100.0, 128: None})) == Trial(32, 2, 99.0)
    assert best([Trial(8, 4, 100.0), Trial(8, 2, 98.5), Trial(8, 1, 90.0)]) == Trial(8, 2, 98.5)
    assert best(tried({16: None})) is None


def test_workers_are_tried_around_the_cores() -> None:
    assert worker_counts(8, usual=8) == [4, 16]
    assert worker_counts(1, usual=1) == [2]


def machine(config: TrainConfig, seconds: float) -> Trial:
    """One that holds 64 images, and whose reads wait: more workers than cores help."""
    assert config.workers is not None
    if config.batch_size > 64:
        return Trial(config.batch_size, config.workers, None)
    rate = min(config.batch_size * 10.0, 100.0 * config.workers)
    return Trial(config.batch_size, config.workers, rate, data_wait=0.25, memory_mib=1024, gpu_percent=87)


def test_the_best_is_printed_as_flags(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("trainer.tune.__main__.usable_cores", lambda: 4)

    assert main(["--dataset", "imagenet"], machine) == Exit.DONE

    assert capsys.readouterr().out == (
        "  batch  workers   images/s  waits for data  memory, MiB  GPU busy\n"
        "     16        4        160            25 %        1,024      87 %\n"
        "     32        4        320            25 %        1,024      87 %\n"
        "     64        4        400            25 %        1,024      87 %\n"
        "    128        4  does not fit into memory\n"
        "     96        4  does not fit into memory\n"
        "     64        2        200            25 %        1,024      87 %\n"
        "     64        8        640            25 %        1,024      87 %\n"
        "It waits for data: 160 images/s a processor (launch.forecast --decoded-per-vcpu 160).\n"
        "largest that fits, of those tried: 64; fastest:\n"
        "--batch-size 64 --workers 8\n"
    )


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--global-batch-size", "64"], "--global-batch-size"),
        (["--batch-size-from", "64", "--batch-size-to", "32"], "--batch-size-from"),
        (["--batchsize", "8"], "did you mean --batch-size?"),
    ],
)
def test_wrong_flags_get_a_sentence(argv: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv, machine) == Exit.SETTINGS
    assert words in capsys.readouterr().err


def test_where_nothing_fits_it_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], lambda config, seconds: Trial(config.batch_size, 1, None)) == Exit.TRAINING
    assert "--precision bf16" in capsys.readouterr().err


def killed(config: TrainConfig, seconds: float) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def without_memory(config: TrainConfig, seconds: float) -> dict[str, Any]:
    raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes")


def without_data(config: TrainConfig, seconds: float) -> dict[str, Any]:
    raise DataError("no folder.")


def crashed(config: TrainConfig, seconds: float) -> dict[str, Any]:
    os._exit(3)


@pytest.mark.parametrize("work", [killed, without_memory])
def test_a_trial_that_runs_out_of_memory_ends_nothing_else(work: Any) -> None:
    assert run_trial(DIGITS, 1.0, work) == Trial(8, 1, None)


@pytest.mark.parametrize(("work", "error"), [(without_data, DataError), (crashed, MachineError)])
def test_other_errors_of_a_trial_are_raised(work: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        run_trial(DIGITS, 1.0, work)


def hangs(config: TrainConfig, seconds: float) -> dict[str, Any]:
    signal.pause()
    raise AssertionError


def test_a_trial_that_hangs_is_ended_and_named() -> None:
    with pytest.raises(MachineError, match=r"a trial of batch 8 with 1 workers did not answer for 0.6 s and was ended"):
        run_trial(DIGITS.model_copy(update={"timeout_s": 0.5}), 0.1, hangs)
    assert multiprocessing.active_children() == []


@pytest.mark.slow("tune trains for real, in a process of its own")
def test_a_trial_trains_and_measures(tmp_path: Path) -> None:
    """On a folder of images, which processes of the trial's own decode, as for a GPU."""
    for place in ("train/cat", "train/dog", "val/cat", "val/dog"):
        (tmp_path / place).mkdir(parents=True)
        for number in range(8):
            Image.new("RGB", (70, 70), (30 * number, 0, 0)).save(tmp_path / place / f"{number}.jpg")
    images = {"dataset": "imagenet", "data_dir": tmp_path, "image_size": 64, "model": "shufflenet_v2_x0_5"}
    trial = run_trial(
        DIGITS.model_copy(update={**images, "worker_kind": "processes", "cache_dir": tmp_path / "cache"}), 0.2
    )

    assert (trial.batch_size, trial.workers) == (8, 1)
    assert trial.images_per_s is not None
    assert trial.images_per_s > 0
    assert 0 <= trial.data_wait < 1
    assert trial.memory_mib > 50


@pytest.mark.slow("tune trains with the strategy of the training")
def test_a_trial_has_the_strategy_of_the_training(capfd: pytest.CaptureFixture[str]) -> None:
    """On one device: it wants a process group, without which torch ended the trial with a traceback."""
    assert (run_trial(DIGITS.model_copy(update={"strategy": "fsdp"}), 0.1).images_per_s or 0) > 0
    with pytest.raises(SettingsError, match="fewer than a batch of 100000"):
        run_trial(DIGITS.model_copy(update={"strategy": "ddp", "batch_size": 100_000}), 0.1)
    assert "error:" not in capfd.readouterr().err  # who started it says it
