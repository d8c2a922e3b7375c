"""Commands end in a sentence, or in silence, also where a stream is closed or Ctrl-C comes early."""

import os
import runpy
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.conftest import ROOT, trainer_env, trainer_words
from trainer.contract import Exit
from trainer.metrics.log import read_records
from trainer.terminal import say


def run(command: str, closed: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    line = f"exec {shlex.quote(sys.executable)} -m {command} {closed}"
    return subprocess.run(
        ["bash", "-c", line], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_closed_stream_changes_nothing_of_how_a_command_ends(closed: str) -> None:
    ended = run("trainer --bogus", closed)

    assert ended.returncode == Exit.SETTINGS
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("command", ["launch.local --help", "trainer --help"])
def test_ctrl_c_while_modules_are_loaded_ends_in_silence(tmp_path: Path, command: str) -> None:
    (tmp_path / "pydantic.py").write_text("raise KeyboardInterrupt")

    ended = run(command, "", PYTHONPATH=str(tmp_path))

    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


def test_a_program_that_imports_the_toolkit_keeps_its_own_streams_and_tracebacks() -> None:
    program = "import launch, trainer, sys; assert sys.excepthook is sys.__excepthook__; raise KeyboardInterrupt"
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)

    assert ended.stderr.endswith("KeyboardInterrupt\n")


def _train(words: list[str], folder: Path, lost: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    out = os.open("/dev/full", os.O_WRONLY) if lost == "full" else writer
    os.dup2(out, sys.stdout.fileno())
    os.dup2(os.open(folder / "stderr", os.O_WRONLY | os.O_CREAT), sys.stderr.fileno())
    os.chdir(folder)
    sys.argv[1:] = words
    runpy.run_module("trainer", run_name="__main__", alter_sys=True)


@pytest.mark.parametrize(("lost", "why"), [("full", "No space left on device"), ("closed", "Broken pipe")])
def test_a_training_outlives_its_standard_output(lost: str, why: str, tmp_path: Path) -> None:
    words = trainer_words(tmp_path, "--epochs", "2")

    process = warm.start(_train, list(map(str, words)), tmp_path, lost, env=trainer_env())
    process.join(timeout=100)

    assert process.exitcode == 0
    err = (tmp_path / "stderr").read_text()
    assert err == f"warning: standard output is lost ({why}); the training goes on without it.\n"
    assert [record["epoch"] for record in read_records(tmp_path / "run" / "metrics.jsonl")] == [1, 2]


def test_a_path_of_any_bytes_can_be_printed(capfd: pytest.CaptureFixture[str]) -> None:
    say("weights  runs/caf" + os.fsdecode(b"\xe9") + "/model.pt")
    assert capfd.readouterr().out == "weights  runs/caf\\udce9/model.pt\n"
