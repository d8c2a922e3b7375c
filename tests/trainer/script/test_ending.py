"""Every way in which a script can end is one exit code and one sentence."""

import signal
import traceback
from collections.abc import Sequence

import pytest

from trainer.contract import STOPPED, Exit
from trainer.script.ending import End, Ended, end_of, reason
from trainer.script.relay import ERR, OUT, Line

TERM, INT = int(signal.SIGTERM), int(signal.SIGINT)
GLOO = "[rank0]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer"
NCCL = "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, ncclRemoteError: A call failed possibly"
STORE = "torch.distributed.DistNetworkError: failed to recv, got 0 bytes"


def end(ended: Ended, *errors: str) -> End:
    return end_of(ended, "t.py", [Line(ERR, text) for text in errors])


@pytest.mark.parametrize(
    ("ended", "errors", "code"),
    [
        pytest.param(Ended(0), (), Exit.DONE, id="done"),
        pytest.param(Ended(75), (), Exit.INTERRUPTED, id="asks for a restart"),
        pytest.param(Ended(3), (), 3, id="any other code is passed on"),
        pytest.param(Ended(200), (), 200, id="whatever it is"),
        pytest.param(Ended(-9), (), Exit.MACHINE, id="killed"),
        pytest.param(Ended(-11), (), Exit.MACHINE, id="crashed"),
        pytest.param(Ended(-15), (), Exit.MACHINE, id="somebody else ended it"),
        pytest.param(Ended(0, TERM), (), Exit.DONE, id="asked, but it was done"),
        pytest.param(Ended(75, TERM), (), Exit.INTERRUPTED, id="asked, and saved"),
        pytest.param(Ended(75, INT), (), Exit.INTERRUPTED, id="Ctrl-C, and saved"),
        pytest.param(Ended(-15, TERM), (), Exit.INTERRUPTED, id="asked, and knew no signal"),
        pytest.param(Ended(143, TERM), (), Exit.INTERRUPTED, id="asked, through a shell"),
        pytest.param(Ended(-15, INT), (), STOPPED, id="Ctrl-C"),
        pytest.param(Ended(-9, INT, 0, True), (), STOPPED, id="Ctrl-C twice"),
        pytest.param(Ended(1, TERM), ("SignalException: Process 7 got signal: 15",), 75, id="asked, with a traceback"),
        pytest.param(Ended(1, TERM), (GLOO,), 75, id="asked, and another had left before"),
        pytest.param(Ended(1, TERM), ("OSError: full",), 1, id="asked, and failed to save"),
        pytest.param(Ended(-9, TERM, 0, True), (), Exit.MACHINE, id="asked, and hung"),
        pytest.param(Ended(-15, 0, 3600.0), (), Exit.MACHINE, id="silent"),
        pytest.param(Ended(0, 0, 3600.0), (), Exit.MACHINE, id="silent, and then left well"),
    ],
)
def test_each_end_has_its_code(ended: Ended, errors: Sequence[str], code: int) -> None:
    found = end(ended, *errors)

    assert found.code == code
    assert bool(found.sentence) is (code != Exit.DONE)


@pytest.mark.parametrize("line", [GLOO, NCCL, STORE, "OSError: [Errno 98] Address already in use"])
@pytest.mark.parametrize("code", [1, -6])
def test_a_script_that_lost_another_rank_may_be_started_again(line: str, code: int) -> None:
    found = end(Ended(code), "Traceback (most recent call last):", line, "[rank0]:[W] destroy_process_group()")

    assert (found.code, found.follows) == (Exit.MACHINE, True)
    assert found.sentence.startswith("t.py lost touch with another rank: ")


def test_a_wrong_use_of_nccl_is_no_lost_rank() -> None:
    assert end(Ended(1), "DistBackendError: NCCL error, ncclInvalidUsage: Duplicate GPU detected").code == 1


SENDING = "[rank0]:[W] sendBytes failed on SocketImpl(fd=3, remote=[a]:1): Broken pipe"
RESET = "[E] NCCL WARN Call to recv from 10.0.0.2 failed : Connection reset by peer"


@pytest.mark.parametrize("line", [SENDING, RESET])
def test_a_connection_of_torch_that_broke_is_a_lost_rank(line: str) -> None:
    assert end(Ended(1), line).follows


@pytest.mark.parametrize(
    "line",
    [
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "urllib3.ProtocolError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "ssl.SSLError: [Errno 104] Connection reset by peer",
    ],
)
def test_a_download_that_broke_off_is_no_lost_rank(line: str) -> None:
    assert end(Ended(1), line) == End(1, f"t.py ended with exit code 1: {line}")


def test_a_script_that_is_alone_loses_no_other_rank() -> None:
    lines = [Line(ERR, GLOO)]

    assert end_of(Ended(1), "t.py", lines, is_alone=True).code == 1
    assert end_of(Ended(1), "t.py", lines).code == Exit.MACHINE
    taken = end_of(Ended(1), "t.py", [Line(ERR, "RuntimeError: EADDRINUSE")], is_alone=True)
    assert taken.sentence == "t.py found a port taken: RuntimeError: EADDRINUSE. Start again to go on."
    assert taken.code == Exit.MACHINE


def test_little_memory_is_named_where_the_kernel_killed_it() -> None:
    assert end(Ended(-9)).sentence == (
        "t.py was killed by SIGKILL; the usual reason is too little memory. Start again to go on."
    )


def test_a_process_that_a_torchrun_of_the_scripts_own_lost_is_told() -> None:
    said = (
        "  rank      : 1 (local_rank: 1)",
        "  exitcode  : -9 (pid: 7)",
        "  traceback : Signal 9 (SIGKILL) received by PID 7",
    )

    found = end(Ended(1), *said)

    assert (found.code, found.follows) == (Exit.MACHINE, False)
    assert found.sentence.startswith("a process of t.py was killed by SIGKILL; the usual reason is too little memory.")


def test_an_endless_silence_names_time_and_flag() -> None:
    assert end(Ended(-15, 0, 3600.4)).sentence == (
        "t.py printed nothing for 3,600 s and was ended; if that may be, give a longer --max-silence-s, or 0 for no "
        "limit."
    )


TRACEBACK = ("[rank1]: Traceback (most recent call last):", '[rank1]:   File "t.py", line 1', "[rank1]: KeyError: 'x'")


def group_of(*causes: Exception) -> tuple[str, ...]:
    """The traceback of a group that was raised."""
    try:
        raise ExceptionGroup("two loaders failed", causes)
    except ExceptionGroup as error:
        return tuple("".join(traceback.format_exception(error)).splitlines())


def chained() -> Exception:
    try:
        try:
            raise KeyError("bucket")
        except KeyError as error:
            raise RuntimeError("no bucket is given") from error
    except RuntimeError as error:
        return error


class NoBucket(Exception):
    pass


GROUP = group_of(ValueError("no such bucket"), KeyError("label"))


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (GROUP, "ValueError: no such bucket"),
        (tuple(f"[rank1]: {text}" for text in GROUP), "ValueError: no such bucket"),
        (GROUP[-4:], "ValueError: no such bucket"),
        ((*GROUP, "sys:1: ResourceWarning: unclosed"), "ValueError: no such bucket"),
        (group_of(ExceptionGroup("inner", [chained()]), KeyError("label")), "RuntimeError: no bucket is given"),
        (group_of(NoBucket("a"), KeyError("label")), "tests.trainer.script.test_ending.NoBucket: a"),
        ((*group_of(KeyError("before")), *GROUP), "ValueError: no such bucket"),
        ((*GROUP, *TRACEBACK), "KeyError: 'x'"),
        (("+------+", "| Data |", "+------+", *TRACEBACK), "KeyError: 'x'"),
    ],
)
def test_of_a_group_of_exceptions_the_first_cause_is_the_reason(lines: Sequence[str], why: str) -> None:
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


def test_standard_output_is_no_reason() -> None:
    assert reason([Line(ERR, "e"), Line(OUT, "epoch 3")], raised=False) == "e"
    assert end_of(Ended(3), "t.py", [Line(OUT, "epoch 3")]).sentence == "t.py ended with exit code 3"
