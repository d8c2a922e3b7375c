"""Running a command and ending all of it, with real processes; how a launcher is stopped."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.core import shell
from launch.core.shell import run
from launch.core.signals import Hangup, hangups, hangups_ignored, unless_gone
from tests.conftest import ROOT
from tests.processes import is_alive
from trainer.errors import MachineError

# ---- shell


LAUNCHER = """
import os, sys
from launch.core.shell import run
print("code", run([sys.executable, "-c", sys.argv[1]], os.environ, grace_s=float(sys.argv[2])), flush=True)
"""

# Like torchrun: starts a worker in a session of its own, and says both their process ids.
AGENT = """
import os, signal, subprocess, sys, time
{agent}
worker = subprocess.Popen([sys.executable, "-c", {worker!r}], start_new_session=True, stdout=subprocess.PIPE)
worker.stdout.readline()
print(os.getpid(), worker.pid, flush=True)
time.sleep(60)
"""
DEAF = "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15)]; print(flush=True); time.sleep(60)"
IGNORE = "for s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)"
LEAVE_WITH_7 = "signal.signal(signal.{0}, lambda *_: (worker.kill(), sys.exit(7)))"


def start(command: str, grace_s: float) -> tuple["subprocess.Popen[str]", list[int]]:
    """A launcher that runs the Python text `command`; the process ids that it printed."""
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, command, str(grace_s)], cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert launcher.stdout is not None
    return launcher, [int(word) for word in launcher.stdout.readline().split()]


def test_the_exit_code_is_the_commands() -> None:
    ask = "import os; raise SystemExit(int(os.environ['ANSWER']))"

    assert run([sys.executable, "-c", ask], {**os.environ, "ANSWER": "42"}) == 42


def test_the_command_writes_where_we_write(capfd: pytest.CaptureFixture[str]) -> None:
    run([sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr)"], os.environ)

    assert capfd.readouterr() == ("out\n", "err\n")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_is_passed_on_and_the_command_decides(name: str) -> None:
    launcher, _ = start(AGENT.format(agent=LEAVE_WITH_7.format(name), worker=DEAF), grace_s=60)

    launcher.send_signal(signal.Signals[name])

    assert launcher.communicate(timeout=10)[0] == "code 7\n"


def test_processes_that_ignore_ctrl_c_are_killed_after_the_grace() -> None:
    launcher, processes = start(AGENT.format(agent=IGNORE, worker=DEAF), grace_s=0.3)
    asked = time.monotonic()

    launcher.send_signal(signal.SIGINT)

    assert launcher.communicate(timeout=10)[0] == "code 130\n"
    assert time.monotonic() - asked >= 0.3
    assert [pid for pid in processes if is_alive(pid)] == []


def test_an_agent_that_leaves_its_worker_behind_does_not_leave_us_with_it() -> None:
    agent = "signal.signal(signal.SIGINT, lambda *_: sys.exit(0))"
    launcher, processes = start(AGENT.format(agent=agent, worker=DEAF), grace_s=60)

    launcher.send_signal(signal.SIGINT)

    assert launcher.communicate(timeout=10)[0] == "code 0\n"
    assert [pid for pid in processes if is_alive(pid)] == []


def test_a_second_ctrl_c_kills_at_once() -> None:
    launcher, processes = start(AGENT.format(agent=IGNORE, worker=DEAF), grace_s=60)

    launcher.send_signal(signal.SIGINT)
    wait_for_the_first_to_arrive(launcher.pid)
    launcher.send_signal(signal.SIGINT)

    assert launcher.communicate(timeout=10)[0] == "code 130\n"
    assert [pid for pid in processes if is_alive(pid)] == []


def wait_for_the_first_to_arrive(pid: int) -> None:
    """Two equal signals that wait to be handled are one.  The first starts the timer, which is a thread."""
    end = time.monotonic() + 10
    while len(list(Path(f"/proc/{pid}/task").iterdir())) < 2:
        assert time.monotonic() < end
        os.sched_yield()


def test_a_command_killed_by_somebody_else_leaves_no_worker_behind(capfd: pytest.CaptureFixture[str]) -> None:
    suicide = AGENT.replace("time.sleep(60)", "os.kill(os.getpid(), signal.SIGKILL)")

    with pytest.raises(MachineError, match="was killed by SIGKILL from outside"):
        run([sys.executable, "-c", suicide.format(agent="", worker=DEAF)], os.environ)

    processes = [int(word) for word in capfd.readouterr().out.split()]
    assert len(processes) == 2
    assert [pid for pid in processes if is_alive(pid)] == []


def test_what_a_command_says_is_heard_line_by_line_or_in_pieces(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training may print gigabytes before the end of a line, or in place of it."""
    monkeypatch.setattr(shell, "LONGEST_LINE", 4)
    heard: list[str] = []
    said = "import sys; print('one long line'); print('two', file=sys.stderr, flush=True); raise SystemExit(3)"

    assert run([sys.executable, "-u", "-c", said], os.environ, on_line=heard.append) == 3

    assert heard == ["one ", "long", " lin", "e", "two"]
    assert capfd.readouterr() == ("", "")


def test_the_command_cannot_wait_for_the_keyboard() -> None:
    program = LAUNCHER, "import sys; sys.exit(len(sys.stdin.read()))", "60"

    ended = subprocess.run(
        [sys.executable, "-c", *program], cwd=ROOT, input="yes", capture_output=True, text=True, timeout=30
    )

    assert ended.stdout == "code 0\n"


def test_a_process_becomes_another_with_its_exit_code() -> None:
    code = "from launch.core.shell import become; become(['sh', '-c', 'exit 7'])"

    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 7


def test_while_a_command_runs_something_is_done_again_and_again() -> None:
    done = list[bool]()

    assert shell.run_beside(["sh", "-c", "sleep 0.5; exit 3"], 0.02, lambda: done.append(True)) == 3
    assert len(done) > 1


def test_ctrl_c_ends_the_command_and_is_no_failure() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    assert shell.run_beside(["sleep", "60"], 0.02, interrupted) == 0


# ---- signals


@pytest.fixture(autouse=True)
def handlers_stay() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    assert {number: signal.getsignal(number) for number in before} == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_kill_or_a_closed_terminal_ends_the_block(number: signal.Signals) -> None:
    with pytest.raises(Hangup, match=number.name), hangups():
        os.kill(os.getpid(), number)


def test_what_nohup_switched_off_stays_off() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with hangups():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_taking_down_is_not_disturbed_by_a_second_signal() -> None:
    with hangups(), hangups_ignored():
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_closed_pipe_does_not_keep_from_going_on() -> None:
    def broken(text: str) -> None:
        raise BrokenPipeError

    unless_gone(broken)("nobody hears this")
