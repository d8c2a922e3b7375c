"""A training outlives its standard output."""

import os
import runpy
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.conftest import trainer_env, trainer_words
from trainer.metrics.log import read_records
from trainer.process.output import say


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
    told = (tmp_path / "stderr").read_text()
    assert told == f"warning: standard output is lost ({why}); the training goes on without it.\n"
    assert [record["epoch"] for record in read_records(tmp_path / "run" / "metrics.jsonl")] == [1, 2]


def test_a_path_of_any_bytes_can_be_said(capfd: pytest.CaptureFixture[str]) -> None:
    say("weights  runs/caf" + os.fsdecode(b"\xe9") + "/model.pt")
    assert capfd.readouterr().out == "weights  runs/caf\\udce9/model.pt\n"
