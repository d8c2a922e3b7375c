"""outcome.json of a script: of this attempt, by the rank that failed first, or by rank 0."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer.contract import OUTCOME, PACE, Exit
from trainer.process.folder_lock import FolderLock
from trainer.script import __main__ as worker
from trainer.script.record import Book, process_start


def book(folder: Path, *, is_head: bool = True, began: float | None = None) -> Book:
    return Book(folder, "mine", time.time() - 10 if began is None else began, is_head)


def written(folder: Path) -> tuple[str, int, str]:
    found = json.loads((folder / OUTCOME).read_text())
    assert found["job"] == "mine"
    return found["state"], found["exit_code"], found["reason"]


def test_what_an_earlier_attempt_left_is_removed_as_the_next_begins(tmp_path: Path) -> None:
    book(tmp_path).write(3, "no data")
    os.utime(tmp_path / OUTCOME, (1, 1))

    book(tmp_path, is_head=False).open()
    assert (tmp_path / OUTCOME).exists()  # by rank 0, which all ranks have
    book(tmp_path).open()
    assert not (tmp_path / OUTCOME).exists()


def test_the_pace_of_an_earlier_start_is_removed_as_the_next_begins(tmp_path: Path) -> None:
    (tmp_path / PACE).touch()

    book(tmp_path, is_head=False).open()
    assert (tmp_path / PACE).exists()
    book(tmp_path).open()
    assert not (tmp_path / PACE).exists()


def test_what_a_quicker_rank_of_this_attempt_has_written_stays(tmp_path: Path) -> None:
    book(tmp_path, is_head=False).write(3, "no data")

    book(tmp_path).open()

    assert written(tmp_path) == ("failed", 3, "no data")


def test_the_first_failure_counts_and_what_follows_does_not(tmp_path: Path) -> None:
    head, other = book(tmp_path), book(tmp_path, is_head=False)
    other.write(Exit.DONE, "")
    other.write(Exit.MACHINE, "lost touch", follows=True)
    assert not (tmp_path / OUTCOME).exists()  # they are rank 0's to write

    head.write(Exit.DONE, "")
    other.write(3, "no data")
    head.write(Exit.MACHINE, "lost touch", follows=True)
    head.write(Exit.INTERRUPTED, "asked to leave")
    head.write(4, "another")

    assert written(tmp_path) == ("failed", 3, "no data")


def test_a_rank_whose_run_came_second_leaves_the_first_ones_outcome_alone(tmp_path: Path) -> None:
    """They began at the same moment: before the lock was there to keep this rank out."""
    lock = FolderLock(tmp_path, lambda _: pytest.fail("nobody took it over"), "first")
    lock.take()

    Book(tmp_path, "mine", 0.0, is_head=False, run="second").write(3, "no data")
    assert not (tmp_path / OUTCOME).exists()
    Book(tmp_path, "mine", 0.0, is_head=False, run="first").write(3, "no data")
    lock.release()

    assert written(tmp_path) == ("failed", 3, "no data")


def test_the_reason_repeats_no_secret_which_the_script_has_printed(tmp_path: Path) -> None:
    """It goes to S3 with the run folder, where more people read it than see the script's output."""
    book(tmp_path).write(1, "train.py ended: cannot reach https://ann:hunter2pass@db.example.org/x")

    _, _, reason = written(tmp_path)
    assert reason.startswith("train.py ended: cannot reach ")
    assert "hunter2pass" not in reason


def test_a_process_knows_when_it_was_started() -> None:
    assert time.time() - 24 * 3600 < process_start() < time.time()
    assert abs(process_start() - process_start()) < 0.05


@pytest.fixture
def handlers() -> Iterator[None]:
    """What a signal does in this process, as before."""
    before = {number: signal.getsignal(number) for number in signal.valid_signals() if number in (1, 2, 10, 15)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_rank_that_is_asked_to_leave_before_it_knows_its_place_is_silent(
    signum: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def asked(_: object) -> None:
        os.kill(os.getpid(), signum)

    monkeypatch.setattr(worker, "parse", asked)

    assert worker.main([], {}) == code
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("handlers")
def test_a_request_while_the_source_is_unpacked_ends_it_with_75(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def asked(_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(worker, "source_folder", asked)

    assert worker.main(["--run-dir", str(tmp_path), "--job", "mine", "--", "t.py"], {}) == Exit.INTERRUPTED == 75
    assert capfd.readouterr().err == "asked to leave before it began\n"
    assert written(tmp_path)[:2] == ("interrupted", 75)
