"""launch.local: the command it plans, and the training that it starts here."""

import json
import os
import shlex
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from launch import local
from launch.core import shell
from launch.core.job import Job
from launch.core.training.classifier import Classifier
from launch.local.__main__ import main, perform
from launch.local.notebook import error_of
from launch.local.options import LocalOptions
from launch.local.planner import LocalPlan, plan
from tests.conftest import SMALL, trainer_env
from tests.listening import below
from tests.processes import left_of, processes_with
from trainer import outcome
from trainer.config import TrainConfig
from trainer.contract import Exit
from trainer.errors import SettingsError
from trainer.outcome import Outcome

NOON = datetime(2026, 3, 1, 12, 0, 5)
# Tests that start a training: each process of it imports torch, on a machine that may be busy.
trains = pytest.mark.timeout(180)


def test_the_command_is_torchrun_with_the_trainer() -> None:
    job = Job(Classifier(TrainConfig(model="cnn", amp=False)), LocalOptions(nproc_per_node=2, max_restarts=3))

    planned = plan(job, python=("python", "-P"), now=NOON, letters="k3v7q")

    assert planned.command == (
        "python", "-P", "-m", "trainer.torchrun", "--standalone", "--nproc-per-node", "2", "--max-restarts", "3",
        "-m", "trainer", "--model", "cnn", "--amp", "false", "--run-dir", "runs/digits-cnn-20260301-120005-k3v7q",
    )  # fmt: skip
    assert planned.run_dir == Path("runs/digits-cnn-20260301-120005-k3v7q")


def test_a_dry_run_misses_the_folder_of_images(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dataset", "imagefolder", "--data-dir", "nowhere", "--dry-run"]) == Exit.DATA
    assert "problem: no folder nowhere" in capsys.readouterr().out


def test_a_dry_run_prints_one_line_for_the_shell_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text("nproc_per_node: 2\nepochs: 3\n")
    flags = ["--config", "job.yaml", "--data-dir", "my data", "--run-dir", "runs/x"]
    words = [
        sys.executable, "-P", "-m", "trainer.torchrun", "--standalone", "--nproc-per-node", "2", "--max-restarts", "0",
        "-m", "trainer", "--data-dir", "my data", "--epochs", "3", "--run-dir", "runs/x",
    ]  # fmt: skip

    assert main([*flags, "--dry-run"]) == 0
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert shlex.split(line) == words

    assert main([*flags, "--dry-run=json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["command"], plan["run_dir"]) == (words, "runs/x")
    assert (plan["title"], plan["problems"], plan["quotes"]) == ("training on this machine", [], [])  # as elsewhere
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]


@trains
@pytest.mark.slow("launch.local trains on two processes, which leave one run folder")
def test_two_processes_train_here_and_leave_one_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert main([*SMALL, "--nproc-per-node", "2", "--cache-dir", "cache", "--outcome", "ended"], trainer_env()) == 0

    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("synthetic-cnn-")
    assert len([json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]) == 2
    written = outcome.read(Path("ended"))
    assert written is not None
    assert written == outcome.read(run)
    assert (written.state, written.exit_code) == ("done", 0)


@trains
@pytest.mark.slow("launch.local on two processes listens on loopback only, and Ctrl-C ends all of it once saved")
def test_ctrl_c_saves_and_ends_launcher_agent_and_workers(tmp_path: Path) -> None:
    endless = [*SMALL, "--epochs", "100000", "--nproc-per-node", "2", "--run-dir", "run", "--cache-dir", "cache"]
    env = {name: value for name, value in trainer_env().items() if not name.endswith("_SOCKET_IFNAME")}
    launcher = subprocess.Popen(
        [sys.executable, "-m", "launch.local", *endless], cwd=tmp_path, text=True,
        env=env | {"TEST_JOB": str(tmp_path)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert launcher.stdout is not None
    next(line for line in launcher.stdout if line.startswith("[METRIC]"))
    assert len(processes_with(f"TEST_JOB={tmp_path}")) >= 4
    listening = below(launcher.pid)
    assert listening
    assert [one for one in listening if not one.is_loopback] == []

    launcher.send_signal(signal.SIGINT)

    _, err = launcher.communicate(timeout=120)
    assert launcher.returncode == 75
    assert err.count("Ctrl-C") == 1
    assert left_of(f"TEST_JOB={tmp_path}") == []
    written = outcome.read(tmp_path / "run")
    assert written is not None
    assert (written.state, written.exit_code) == ("interrupted", 75)


# ---- how a training ended


def run_of(folder: Path, script: str) -> Outcome:
    """What perform() makes of a training that is a few lines of bash."""
    return perform(LocalPlan(("bash", "-c", script), folder), dict(os.environ))


def test_a_script_ends_with_where_its_results_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").touch()

    assert main(["--script", str(tmp_path / "train.py"), "--run-dir", str(tmp_path / "run")], trainer_env()) == 0

    assert capsys.readouterr().out.splitlines()[-1] == f"results: {tmp_path / 'run'}"


def test_the_outcome_that_the_training_leaves_is_the_launchers_but_not_that_of_an_earlier_run(tmp_path: Path) -> None:
    Outcome("failed", 3, "no images.", 7.5).write(tmp_path)
    assert run_of(tmp_path, "exit 3") == Outcome("failed", 3, "no images.", 7.5)

    Outcome("done", 0).write(tmp_path)
    assert run_of(tmp_path, "exit 2") == Outcome("failed", 2)


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        (0, Outcome("done", 0)),
        (6, Outcome("failed", 6)),
        (200, Outcome("failed", 200)),  # a script's own
        (75, Outcome("stopped", 130, "stopped before it had saved")),
    ],
)
def test_the_exit_code_counts_where_the_training_leaves_no_outcome(code: int, ended: Outcome, tmp_path: Path) -> None:
    assert run_of(tmp_path, f"exit {code}") == ended


HANGS = "import time; print('epoch 1', flush=True); time.sleep(60)"
BIG = "import os; os.truncate(os.open(os.environ['DDP_RUN_DIR'] + '/big', os.O_CREAT | os.O_WRONLY), 2 * 10**9)"


@pytest.mark.parametrize(
    ("text", "code", "reason", "last"),
    [
        (HANGS, 6, "train.py printed nothing for ", "epoch 1"),
        (f"{BIG}\nraise SystemExit('full')", 1, "train.py ended with exit code 1: full", "full"),
        ("for _ in range(2000): print('x' * 999)\nraise SystemExit('enough')", 1, "exit code 1: enough", "enough"),
    ],
)
def test_a_script_that_hangs_or_writes_a_lot_ends_in_one_sentence(
    text: str,
    code: int,
    reason: str,
    last: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """By the command that launch.local makes, without torchrun, which takes seconds to start and passes codes on."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(text)
    silence_s = "0.2" if text == HANGS else "60"
    flags = ["--run-dir", "run", "--max-silence-s", silence_s, "--max-output-mb", "1", "--script", "train.py"]
    assert main([*flags, "--dry-run=json"]) == 0
    command = json.loads(capfd.readouterr().out)["command"]
    rank = [sys.executable, *command[command.index("trainer.script") - 1 :]]

    ended = perform(LocalPlan(tuple(rank), Path("run")), trainer_env({"TEST_JOB": str(tmp_path)}))

    out, err = capfd.readouterr()
    assert ended.exit_code == code
    assert reason in ended.reason
    assert err.count("error: ") == 1
    assert f"  {last}\n" in err
    assert len(out) <= 10**6
    assert left_of(f"TEST_JOB={tmp_path}") == []


# ---- from Python


TINY: dict[str, Any] = {"model": "cnn", "dataset": "synthetic", "synthetic_images": 64, "image_size": 8,
                        "batch_size": 8, "precision": "fp32", "plot": False, "threads": 1}  # fmt: skip


@pytest.fixture
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in trainer_env().items():
        monkeypatch.setenv(name, value)


@trains
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


def test_an_exit_code_is_the_kind_of_error() -> None:
    error = error_of(5, ["epoch 1", "error: the loss is not finite;", "lower --lr."])

    assert isinstance(error, local.TrainingError)
    assert str(error) == "the loss is not finite;\nlower --lr."
    assert str(error_of(9, ["a last line"])) == "a last line"
    assert str(error_of(9, [])) == "the trainer ended with exit code 9."


def test_train_refuses_a_wrong_name_before_it_starts_anything() -> None:
    with pytest.raises(SettingsError, match="unknown setting 'epoch'; did you mean 'epochs'"):
        local.train(epoch=2)


def test_train_raises_what_went_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    commands: list[list[str]] = []

    def run(command: list[str], *_: Any, **__: Any) -> int:
        commands.append(command)
        return 5

    monkeypatch.setattr(shell, "run", run)
    with pytest.raises(local.TrainerError):
        local.train(model="cnn", dataset="digits")
    assert commands[0][:3] == [sys.executable, "-P", "-m"]  # so no module of this folder runs in it
