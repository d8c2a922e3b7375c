"""Users of a cluster share folders: what one writes below runs/ holds up and breaks no command of another."""

import json
import os
from pathlib import Path

import pytest

from launch.core.training.script import Script
from launch.slurm.commands import _epochs
from launch.slurm.ended import outcome_of
from launch.slurm.folder import earlier_jobs, pace_of, read_folder
from launch.slurm.follow import FileTail
from launch.slurm.names import LOG, SCRIPT, SPEC, STARTS
from launch.slurm.status import as_text
from tests.launch.slurm.test_ended import NO_SLURM
from tests.patience import ended_after
from trainer import outcome
from trainer.contract import OUTCOME, PACE, SETTINGS


def left(folder: Path) -> Path:
    """What a job leaves that has trained a script."""
    folder.mkdir(parents=True)
    (folder / SCRIPT).write_text("#!/bin/bash\n")
    (folder / SPEC).write_text(json.dumps({"job": folder.name, "backend": "slurm", "ids": ["7"]}))
    (folder / STARTS).write_text('{"job": "7", "code": 0, "then": "done"}\n')
    return folder


@pytest.mark.parametrize("name", [SCRIPT, SPEC, STARTS, LOG, OUTCOME, PACE, SETTINGS])
def test_nobody_waits_for_a_pipe(name: str, tmp_path: Path) -> None:
    folder = left(tmp_path / "theirs")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)

    with ended_after(10):
        assert read_folder(folder).exists
        assert FileTail(folder / LOG).new_lines() == []
        assert (outcome.read(folder), pace_of(folder), _epochs(folder)) == (None, None, "?")


@pytest.mark.parametrize("name", [SCRIPT, STARTS, OUTCOME, PACE])
def test_no_file_without_end_is_read(name: str, tmp_path: Path) -> None:
    folder = left(tmp_path / "theirs")
    with (folder / name).open("wb") as file:
        file.truncate(10**13)

    assert read_folder(folder).exists
    assert (outcome.read(folder), pace_of(folder)) == (None, None)


@pytest.mark.parametrize(
    "start",
    [{}, {"code": "0"}, {"code": 10**400}, {"code": 0, "then": ["done"]}, {"code": 0, "ended": "now"},
     {"code": True}, {"code": -1}, {"code": 0, "began": 10**400}],
)  # fmt: skip
def test_a_start_that_no_job_notes_is_left_out(start: dict[str, object], tmp_path: Path) -> None:
    folder = left(tmp_path / "theirs")
    with (folder / STARTS).open("a") as file:
        file.write(json.dumps({"job": "7", "then": "failed", **start}) + "\n")

    found = read_folder(folder)

    assert outcome_of("theirs", found, NO_SLURM).exit_code == 0
    assert "1 so far, with exit code 0 (done)" in as_text("theirs", None, found, None, None, "?")


def test_a_job_script_that_is_no_text_is_no_reason_to_fail(tmp_path: Path) -> None:
    (left(tmp_path / "theirs") / SCRIPT).write_bytes(b"\xff\xfe")

    assert read_folder(tmp_path / "theirs").script == "\ufffd\ufffd"


def test_a_neighbours_pipe_does_not_hold_up_the_plan_of_a_script(tmp_path: Path) -> None:
    """Every plan of a script looks at the newest jobs below runs/."""
    script = Script(("train.py",), digest=64 * "a", run_dir=Path("run"))
    os.mkfifo(left(tmp_path / "runs" / "train-20261121-101500") / OUTCOME)

    with ended_after(10):
        assert earlier_jobs(script, "mine", tmp_path) == ()
