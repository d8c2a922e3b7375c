"""Every way in which a script can end is one exit code and one sentence."""

import json
import os
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from trainer.contract import OUTCOME, PACE, STOPPED, Exit
from trainer.script import __main__ as worker
from trainer.script.ending import End, Ended, OutcomeFile, end_of, reason
from trainer.script.relay import ERR, Line

TERM, INT = int(signal.SIGTERM), int(signal.SIGINT)
GLOO = "[rank0]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer"
NCCL = "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, ncclRemoteError: A call failed possibly"
STORE = "torch.distributed.DistNetworkError: failed to recv, got 0 bytes"


TORCHRUNS = ("  exitcode  : -9 (pid: 7)", "  traceback : Signal 9 (SIGKILL) received by PID 7")


def end(ended: Ended, *errors: str) -> End:
    return end_of(ended, "t.py", [Line(ERR, text) for text in errors])


@pytest.mark.parametrize(
    ("ended", "errors", "code"),
    [
        pytest.param(Ended(0), (), Exit.DONE, id="done"),
        pytest.param(Ended(75), (), Exit.INTERRUPTED, id="asks for a restart"),
        pytest.param(Ended(3), (), 3, id="any other code is passed on"),
        pytest.param(Ended(-9), (), Exit.MACHINE, id="killed"),
        pytest.param(Ended(-15), (), Exit.MACHINE, id="somebody else ended it"),
        pytest.param(Ended(0, TERM), (), Exit.DONE, id="asked, but it was done"),
        pytest.param(Ended(75, TERM), (), Exit.INTERRUPTED, id="asked, and saved"),
        pytest.param(Ended(-15, TERM), (), Exit.INTERRUPTED, id="asked, and knew no signal"),
        pytest.param(Ended(143, TERM), (), Exit.INTERRUPTED, id="asked, through a shell"),
        pytest.param(Ended(-15, INT), (), STOPPED, id="Ctrl-C"),
        pytest.param(Ended(-9, INT, 0, True), (), STOPPED, id="Ctrl-C twice"),
        pytest.param(Ended(1, TERM), ("SignalException: Process 7 got signal: 15",), 75, id="asked, with a traceback"),
        pytest.param(Ended(1, TERM), (GLOO,), 75, id="asked, and another had left before"),
        pytest.param(Ended(1, TERM), ("OSError: full",), 1, id="asked, and failed to save"),
        pytest.param(Ended(-9, TERM, 0, True), (), Exit.MACHINE, id="asked, and hung"),
        pytest.param(Ended(-15, 0, 3600.0), (), Exit.MACHINE, id="silent"),
        pytest.param(Ended(1), TORCHRUNS, Exit.MACHINE, id="a torchrun of its own lost a process"),
    ],
)
def test_each_end_has_its_code(ended: Ended, errors: Sequence[str], code: int) -> None:
    found = end(ended, *errors)

    assert found.code == code
    assert bool(found.sentence) is (code != Exit.DONE)


@pytest.mark.parametrize(
    ("line", "is_lost"),
    [
        (GLOO, True),
        (NCCL, True),
        (STORE, True),
        ("OSError: [Errno 98] Address already in use", True),
        ("[rank0]:[W] sendBytes failed on SocketImpl(fd=3, remote=[a]:1): Broken pipe", True),
        ("[E] NCCL WARN Call to recv from 10.0.0.2 failed : Connection reset by peer", True),
        ("DistBackendError: NCCL error, ncclInvalidUsage: Duplicate GPU detected", False),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", False),
        ("ssl.SSLError: [Errno 104] Connection reset by peer", False),
    ],
)
@pytest.mark.parametrize("code", [1, -6])
def test_a_script_that_lost_another_rank_may_be_started_again(line: str, is_lost: bool, code: int) -> None:
    found = end(Ended(code), "Traceback (most recent call last):", line, "[rank0]:[W] destroy_process_group()")

    assert found.follows is is_lost
    assert (found.code == Exit.MACHINE) is (is_lost or code < 0)


def test_a_script_that_is_alone_loses_no_other_rank() -> None:
    lines = [Line(ERR, GLOO)]

    assert end_of(Ended(1), "t.py", lines, is_alone=True).code == 1
    assert end_of(Ended(1), "t.py", lines).code == Exit.MACHINE
    taken = end_of(Ended(1), "t.py", [Line(ERR, "RuntimeError: EADDRINUSE")], is_alone=True)
    assert (taken.code, "a port taken" in taken.sentence) == (Exit.MACHINE, True)


TRACEBACK = ("[rank1]: Traceback (most recent call last):", '[rank1]:   File "t.py", line 1', "[rank1]: KeyError: 'x'")


def group_of(*causes: Exception) -> tuple[str, ...]:
    """The traceback of a group that was raised."""
    try:
        raise ExceptionGroup("two loaders failed", causes)
    except ExceptionGroup as error:
        return tuple("".join(traceback.format_exception(error)).splitlines())


GROUP = group_of(ExceptionGroup("inner", [ValueError("no such bucket")]))


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (GROUP, "ValueError: no such bucket"),
        (tuple(f"[rank1]: {text}" for text in GROUP), "ValueError: no such bucket"),
        ((*GROUP, *TRACEBACK), "KeyError: 'x'"),
        (("+------+", "| Data |", "+------+", *TRACEBACK), "KeyError: 'x'"),
    ],
)
def test_of_a_group_of_exceptions_a_cause_is_the_reason(lines: Sequence[str], why: str) -> None:
    assert reason([Line(ERR, text) for text in lines], raised=True) == why


@pytest.mark.parametrize(
    ("lines", "raised", "why"),
    [
        ((), True, ""),
        ((*TRACEBACK, "sys:1: ResourceWarning: unclosed"), True, "KeyError: 'x'"),
        ((*TRACEBACK, "no data in /data"), False, "no data in /data"),
        (("no data", " "), True, "no data"),
        (("a.b.MyError",), True, "a.b.MyError"),
        (("x" * 400,), True, "x" * 297 + "..."),
    ],
)
def test_the_reason_is_the_exceptions_line_or_the_last_one(lines: Sequence[str], raised: bool, why: str) -> None:
    assert reason([Line(ERR, text) for text in lines], raised=raised) == why


def outcome_file(folder: Path, *, is_head: bool = True, began: float | None = None) -> OutcomeFile:
    return OutcomeFile(folder, "mine", time.time() - 10 if began is None else began, is_head)


def written(folder: Path) -> tuple[str, int, str]:
    found = json.loads((folder / OUTCOME).read_text())
    assert found["job"] == "mine"
    return found["state"], found["exit_code"], found["reason"]


def test_what_an_earlier_attempt_left_is_removed_as_the_next_begins(tmp_path: Path) -> None:
    outcome_file(tmp_path).write(3, "no data")
    os.utime(tmp_path / OUTCOME, (1, 1))
    (tmp_path / PACE).touch()

    outcome_file(tmp_path, is_head=False).open()
    assert (tmp_path / OUTCOME).exists()  # by rank 0, which all ranks have
    outcome_file(tmp_path).open()
    assert list(tmp_path.iterdir()) == []


def test_what_a_quicker_rank_of_this_attempt_has_written_stays(tmp_path: Path) -> None:
    outcome_file(tmp_path, is_head=False).write(3, "no data")

    outcome_file(tmp_path).open()

    assert written(tmp_path) == ("failed", 3, "no data")


def test_the_first_failure_counts_and_what_follows_does_not(tmp_path: Path) -> None:
    head, other = outcome_file(tmp_path), outcome_file(tmp_path, is_head=False)
    other.write(Exit.DONE, "")
    other.write(Exit.MACHINE, "connection lost", follows=True)
    assert not (tmp_path / OUTCOME).exists()  # they are rank 0's to write

    head.write(Exit.DONE, "")
    other.write(3, "no data")
    head.write(Exit.MACHINE, "connection lost", follows=True)
    head.write(Exit.INTERRUPTED, "asked to leave")
    head.write(4, "another")

    assert written(tmp_path) == ("failed", 3, "no data")


def test_the_reason_repeats_no_secret_which_the_script_has_printed(tmp_path: Path) -> None:
    """It goes to S3 with the run folder, where more people read it than see the script's output."""
    outcome_file(tmp_path).write(1, "train.py ended: cannot reach https://ann:hunter2pass@db.example.org/x")

    _, _, reason = written(tmp_path)
    assert reason.startswith("train.py ended: cannot reach ")
    assert "hunter2pass" not in reason


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
