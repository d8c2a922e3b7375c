"""How a job that left the queue ended, where Slurm need not be asked or has only a word for it."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from launch.core.errors import Ended
from launch.slurm.folder import JobFolder, name_in, read_folder
from launch.slurm.listing import QueuedJob
from launch.slurm.lookup import Slurm
from launch.slurm.status import by_slurm, conclude, outcome_of, phases
from trainer.outcome import Outcome

NO_SLURM = Slurm({"PATH": ""})


def folder_with(path: Path, *starts: tuple[str, int, str]) -> JobFolder:
    """A job of one submission, 7, with starts of a submission, an exit code and what followed."""
    (path / "job.json").write_text(json.dumps({"job": "x", "backend": "slurm", "ids": ["7"]}))
    lines = [json.dumps({"job": job, "code": code, "then": then}) for job, code, then in starts]
    (path / "starts.jsonl").write_text("\n".join([*lines, '{"cut off']))
    return read_folder(path)


def test_the_outcome_in_the_folder_counts(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, ("7", 75, "requeue"), ("7", 3, "failed"))
    Outcome("failed", 3, "no images.", 7.5).write(tmp_path)

    assert outcome_of("x", folder, NO_SLURM) == Outcome("failed", 3, "no images.", 7.5, job="x")


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_a_damaged_description_of_a_job_is_as_none(content: str, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(content)

    folder = read_folder(tmp_path)

    assert (folder.ids, name_in(tmp_path)) == ((), None)


@pytest.mark.parametrize(("code", "state"), [(0, "done"), (3, "failed"), (75, "interrupted")])
def test_the_noted_exit_code_counts_where_the_outcome_is_lost(code: int, state: str, tmp_path: Path) -> None:
    ended = outcome_of("x", folder_with(tmp_path, ("7", code, "done" if not code else "failed")), NO_SLURM)

    assert (ended.state, ended.exit_code) == (state, code)


@pytest.mark.parametrize("starts", [[], [("6", 0, "done")], [("7", 75, "requeue")], [("7", 75, "slurm")]])
def test_only_the_end_of_the_newest_submission_is_an_end(starts: list[tuple[str, int, str]], tmp_path: Path) -> None:
    assert folder_with(tmp_path, *starts).last_start is None


@pytest.mark.parametrize(
    ("slurm_state", "state", "code"),
    [("TIMEOUT", "interrupted", 75), ("CANCELLED+", "stopped", 130), ("NODE_FAIL", "failed", 6),
     ("OUT_OF_MEMORY", "failed", 5), ("", "failed", 6)],
)  # fmt: skip
def test_a_job_that_could_not_note_its_end_has_slurms_word(slurm_state: str, state: str, code: int) -> None:
    ended = by_slurm(slurm_state, "x")

    assert (ended.state, ended.exit_code) == (state, code)
    assert "python -m launch.slurm logs x" in ended.reason
    assert ("Submit it with the same command and --job-name x to resume" in ended.reason) == (code != 5)


def test_a_job_that_is_not_done_ends_its_follower_with_its_code_and_outcome() -> None:
    failed = Outcome("failed", 3, "no images.", seconds=7.0, job="x")

    with pytest.raises(Ended) as caught:
        conclude(failed, Path("runs/x"), print)

    assert (caught.value.code, str(caught.value), caught.value.outcome) == (3, "no images.", failed)


@pytest.mark.parametrize(
    ("state", "ran", "then", "expected"),
    [
        ("PENDING", "0:00", "requeue", [("queue", 0, 60), ("train", 60, 120), ("queue", 120, None)]),
        (
            "RUNNING",
            "1:00",
            "requeue",
            [("queue", 0, 60), ("train", 60, 120), ("queue", 120, 240), ("train", 240, None)],
        ),
        ("RUNNING", "INVALID", "requeue", [("queue", 0, 60), ("train", 60, 120), ("queue", 120, None)]),
        ("", "", "done", [("queue", 0, 60), ("train", 60, 120)]),
    ],
)
def test_a_job_waits_and_trains_once_for_each_start_of_its_submission(
    state: str, ran: str, then: str, expected: list[tuple[str, int, int | None]], tmp_path: Path
) -> None:
    starts = (
        {"job": "6", "began": -90, "ended": -30, "then": "failed"},
        {"job": "7", "began": 60, "ended": 120, "then": then},
    )
    folder = replace(folder_with(tmp_path), submitted=datetime.fromtimestamp(0, UTC), starts=starts)
    queued = QueuedJob("7", "x", state, "None", ran, "1:00", 1, "n0", "main", "N/A", tmp_path) if state else None

    found = phases(queued, folder, datetime.fromtimestamp(300, UTC))

    assert [
        (one.name, one.began.timestamp(), one.ended.timestamp() if one.ended else None) for one in found
    ] == expected
