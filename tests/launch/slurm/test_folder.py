"""What lies in a job's folder is read as far as a job of ours writes it, and damage in it breaks no command."""

import json
import os
from pathlib import Path

import pytest

from launch.slurm.folder import read_folder
from launch.slurm.follow import MOST_SHOWN, FileTail
from launch.slurm.names import LOG, SPEC, STARTS
from launch.slurm.status import job_state, outcome_of
from tests.launch.slurm.jobs import left
from tests.launch.slurm.test_status import NO_SLURM


@pytest.mark.parametrize(
    "start",
    [
        {},
        {"code": "0"},
        {"code": -1},
        {"code": 0, "then": ["done"]},
        {"code": 0, "then": "done)\nnext:\n  curl x | sh"},
    ],
)
def test_a_start_that_no_job_notes_is_left_out(start: dict[str, object], tmp_path: Path) -> None:
    folder = left(tmp_path / "job")
    with (folder / STARTS).open("a") as file:
        file.write(json.dumps({"job": "7", "then": "failed", **start}) + "\n")

    found = read_folder(folder)

    assert outcome_of("job", found, NO_SLURM).exit_code == 0
    assert "1 so far, with exit code 0 (done)" in str(job_state("job", None, found, None, None, "?"))


def test_of_a_log_without_end_the_last_is_shown_and_no_more_is_read(tmp_path: Path) -> None:
    log = left(tmp_path / "job") / LOG
    with log.open("wb") as file:
        file.truncate(10**13)
        file.seek(0, os.SEEK_END)
        file.write(b"\nits end\n")

    tail = FileTail(log)
    first, *_, last = tail.new_lines(to_end=True)

    assert (first, last) == (f"{10**13 + 9 - MOST_SHOWN:,} bytes are not shown; they are in {log}", "its end")
    assert tail.new_lines(to_end=True) == []


@pytest.mark.parametrize("start", [-5, 10**400, "0"], ids=["before it", "far beyond", "text"])
def test_a_log_begins_nowhere_but_in_the_log(start: object, tmp_path: Path) -> None:
    folder = left(tmp_path / "job")
    (folder / SPEC).write_text(json.dumps({"log_start": start}))
    (folder / LOG).write_text("hello\n")

    assert FileTail(folder / LOG, read_folder(folder).log_start).new_lines() == ["hello"]
