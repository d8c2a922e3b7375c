"""launch.local: the command it plans, and the training that it starts here."""

import json
import shlex
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from launch import local
from launch.core.cli import LaunchOptions
from launch.core.job import Job
from launch.local.options import LocalOptions
from launch.local.planner import plan
from tests.conftest import SMALL, trainer_env
from tests.processes import left_of, processes_with
from trainer.config import TrainConfig
from trainer.errors import SettingsError

NOON = datetime(2026, 3, 1, 12, 0, 5)
LAUNCH = [sys.executable, "-m", "launch.local"]


def launch(folder: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*LAUNCH, *flags], cwd=folder, env=trainer_env(), capture_output=True, text=True, timeout=120)


def test_the_command_is_torchrun_with_the_trainer() -> None:
    job = Job(TrainConfig(model="cnn", amp=False), LocalOptions(nproc_per_node=2, max_restarts=3))

    assert plan(job, python="python", now=NOON) == (
        "python", "-m", "trainer.torchrun", "--standalone", "--nproc-per-node", "2", "--max-restarts", "3",
        "-m", "trainer", "--model", "cnn", "--amp", "false", "--run-dir", "runs/digits-cnn-20260301-120005",
    )  # fmt: skip


def test_a_run_folder_that_is_given_is_kept() -> None:
    job = Job(TrainConfig(run_dir=Path("my runs/a")), LocalOptions())

    assert plan(job, python="python", now=NOON)[-2:] == ("--run-dir", "my runs/a")


def test_a_job_cannot_be_made_of_settings_that_contradict_each_other() -> None:
    with pytest.raises(SettingsError, match="unknown model 'resnt18'; did you mean 'resnet18'"):
        Job(TrainConfig(model="resnt18"), LocalOptions())


def test_launchers_and_trainer_share_no_name() -> None:
    names: list[Any] = [*LaunchOptions.model_fields, *LocalOptions.model_fields, *TrainConfig.model_fields]

    assert len(names) == len(set(names))


def test_a_dry_run_prints_one_line_for_the_shell_and_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("nproc_per_node: 2\nepochs: 3\n")

    shown = launch(tmp_path, "--config", "job.yaml", "--data-dir", "my data", "--run-dir", "runs/x", "--dry-run")

    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.count("\n") == 1
    assert shlex.split(shown.stdout) == [
        sys.executable, "-m", "trainer.torchrun", "--standalone", "--nproc-per-node", "2", "--max-restarts", "0",
        "-m", "trainer", "--data-dir", "my data", "--epochs", "3", "--run-dir", "runs/x",
    ]  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]


def test_two_processes_train_here_and_leave_one_run_folder(tmp_path: Path) -> None:
    ended = launch(tmp_path, *SMALL, "--nproc-per-node", "2", "--cache-dir", "cache")

    assert ended.returncode == 0, ended.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("synthetic-cnn-")
    assert len([json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]) == 2


def test_the_trainers_sentence_and_exit_code_come_through(tmp_path: Path) -> None:
    ended = launch(tmp_path, "--nproc-per-node", "2", "--dataset", "imagefolder", "--data-dir", "nowhere")

    assert ended.returncode == 3
    assert ended.stderr.count("error: ") == 1
    assert "nowhere" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_ctrl_c_ends_launcher_agent_and_workers(tmp_path: Path) -> None:
    endless = [*SMALL, "--epochs", "100000", "--nproc-per-node", "2", "--run-dir", "run", "--cache-dir", "cache"]
    launcher = subprocess.Popen(
        [*LAUNCH, *endless], cwd=tmp_path, env=trainer_env({"TEST_JOB": str(tmp_path)}), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert launcher.stdout is not None
    next(line for line in launcher.stdout if line.startswith("[METRIC]"))
    assert len(processes_with(f"TEST_JOB={tmp_path}")) >= 4

    launcher.send_signal(signal.SIGINT)

    launcher.communicate(timeout=60)
    assert launcher.returncode == 130
    assert left_of(f"TEST_JOB={tmp_path}") == []


# ---- from Python


TINY: dict[str, Any] = {"model": "cnn", "dataset": "synthetic", "synthetic_images": 64, "image_size": 8,
                        "batch_size": 8, "precision": "fp32", "plot": False, "threads": 1}  # fmt: skip


@pytest.fixture
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in trainer_env().items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("on_the_path")
def test_train_returns_a_record_an_epoch_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    records = local.train(**TINY, epochs=2, show=True)

    assert [record["epoch"] for record in records] == [1, 2]
    assert list(tmp_path.iterdir()) == []
    said = capsys.readouterr().out
    assert "epoch 2/2" in said
    assert "[METRIC]" not in said


@pytest.mark.usefixtures("on_the_path")
def test_train_raises_the_trainers_own_sentence(tmp_path: Path) -> None:
    with pytest.raises(local.TrainingError, match=r"^the loss is not finite .* lower --lr"):
        local.train(**TINY, epochs=2, lr=1e12)
    with pytest.raises(local.TrainerError, match=r"no folder .*nowhere; point --data-dir") as caught:
        local.train(dataset="imagefolder", data_dir=tmp_path / "nowhere")
    assert caught.value.code == 3


def test_train_refuses_a_wrong_name_before_it_starts_anything() -> None:
    with pytest.raises(SettingsError, match="unknown setting 'epoch'; did you mean 'epochs'"):
        local.train(epoch=2)
