"""Run commands on this machine and end all of their processes.  The only module that starts processes."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO, Any, NoReturn

from launch.core.signals import MARK, Ending, handling
from trainer.errors import MachineError

# Timeout for the last lines of a command that has ended.
HEARD_OUT_S = 5.0
LONGEST_LINE = 2**20  # characters; longer lines are split, as an endless one would fill the memory
AWAKE_S = 1.0
_CAPTURED: Mapping[str, Any] = {
    "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace",
}  # fmt: skip


def run(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    grace_s: float = 40.0,
    on_line: Callable[[str], None] | None = None,
    on_start: Callable[[int], None] | None = None,
    on_signal: Callable[[int], None] | None = None,
    stop_signal: int | None = None,
) -> int:
    """Run `command` to its end and return its exit code.  Call it from the main thread.

    on_line: called with each line of its output, from another thread; by default it inherits our output.
    on_start: called with its process id.
    on_signal: called with the first signal that asks us to end it; the command may exit with any code after it.
    SIGINT, SIGTERM and SIGHUP are passed on, or stop_signal in their place.  What is left of the command after
    grace_s, or at a second Ctrl-C, is killed, and 128 + the first signal is returned.  The default is longer than the
    30 s that torchrun gives its workers to save.  Raises MachineError if the command was killed from outside.
    """
    ending = Ending(grace_s, stop_signal)
    with handling(ending.on_signal):
        code = _run_to_end(command, env, ending, on_line, on_start)
    return _exit_code(command, code, ending, on_signal)


def _run_to_end(
    command: Sequence[str],
    env: Mapping[str, str],
    ending: Ending,
    on_line: Callable[[str], None] | None,
    on_start: Callable[[int], None] | None,
) -> int:
    """The exit code of `command`, or minus the signal that ended it; nothing of it is left."""
    # No standard input: a process group in the background is suspended when it reads a terminal.
    process = subprocess.Popen(
        command,
        env={**env, MARK: ending.mark},
        stdin=subprocess.DEVNULL,
        process_group=0,
        **(_CAPTURED if on_line else {}),
    )
    ending.begin(process.pid)
    if on_start:
        on_start(process.pid)
    with _lines_passed_on(process.stdout, on_line):
        code = _wait(process)
        ending.finish(code)
    return code


def _exit_code(command: Sequence[str], code: int, ending: Ending, on_signal: Callable[[int], None] | None) -> int:
    """The exit code to return.  Raises MachineError if the command was killed from outside."""
    if on_signal and ending.asked_by is not None:
        on_signal(ending.asked_by)
    if code >= 0:
        return code
    if ending.asked_by is None:
        name = signal.Signals(-code).name
        raise MachineError(f"{command[0]} was killed by {name} from outside; its child processes were ended too.")
    return 128 + ending.asked_by


def _wait(process: "subprocess.Popen[str]") -> int:
    """Wait for `process` to end and return its exit code.

    Wakes up now and then: the kernel may deliver a signal to another thread, and Python runs its handler in the main
    thread only, which would otherwise sleep until the process ends.
    """
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(AWAKE_S)


@contextmanager
def _lines_passed_on(lines: IO[str] | None, on_line: Callable[[str], None] | None) -> Iterator[None]:
    """Call `on_line` for each line inside the block, and never after it.

    Does not wait for children that keep the pipe open or still write.
    """
    if lines is None or on_line is None:
        yield
        return
    at_work, is_over = threading.Lock(), threading.Event()

    def listen() -> None:
        with lines:
            for line in iter(partial(lines.readline, LONGEST_LINE), ""):
                with at_work:
                    if not is_over.is_set():
                        on_line(line.rstrip("\n"))

    listener = threading.Thread(target=listen, name="listener", daemon=True)
    listener.start()
    yield
    listener.join(HEARD_OUT_S)
    is_over.set()
    if at_work.acquire(timeout=HEARD_OUT_S):  # not in the middle of a line
        at_work.release()


class Parallel:
    """Commands that other threads run at the same time, each with `run`; a signal reaches all of them.

    asked_by: the first signal that asked to end them; commands that start after it end at once.
    """

    def __init__(self) -> None:
        self.asked_by: int | None = None
        self._endings: list[Ending] = []

    def run(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        grace_s: float = 40.0,
        on_line: Callable[[str], None] | None = None,
        on_start: Callable[[int], None] | None = None,
        on_signal: Callable[[int], None] | None = None,
    ) -> int:
        """As run(), from any thread."""
        ending = Ending(grace_s, None)
        self._endings.append(ending)
        if self.asked_by is not None:
            ending.on_signal(self.asked_by, None)
        try:
            code = _run_to_end(command, env, ending, on_line, on_start)
        finally:
            self._endings.remove(ending)
        return _exit_code(command, code, ending, on_signal)

    def stop(self) -> None:
        """Ask all commands to end, as a SIGTERM to this process would."""
        self.on_signal(signal.SIGTERM, None)

    def on_signal(self, signum: int, frame: FrameType | None) -> None:
        self.asked_by = self.asked_by or signum
        for ending in list(self._endings):
            ending.on_signal(signum, frame)


@contextmanager
def parallel() -> Iterator[Parallel]:
    """Commands that threads run in parallel inside the block; in the main thread only."""
    commands = Parallel()
    with handling(commands.on_signal):
        yield commands


class ChildProcess:
    """A process beside this one; one of start_child() ends with it, as its standard input closes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it is alive; minus the signal where one ended it."""
        return self._process.poll()

    def lines(self) -> Iterator[bytes]:
        """Its output after "ready", until all writers have closed the pipe."""
        assert self._process.stdout is not None
        return iter(self._process.stdout)

    def send(self, signum: int) -> None:
        """Send it a signal, if it is still running."""
        self._process.send_signal(signum)

    def write_line(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; return whether it came in time."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return not self.is_alive

    def close(self, grace_s: float = 0.0) -> None:
        """Close its standard input, wait up to grace_s for its end, then kill it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        if not grace_s or not self.wait(grace_s):
            self._process.kill()
        self._process.wait()
        self._process.stdout.close()


def start_child(command: Sequence[str], env: Mapping[str, str]) -> ChildProcess:
    """Start `command`, which must read its standard input to the end; return once it has printed "ready".

    Its own session keeps Ctrl-C from it.  Raises MachineError if it ends before it is ready.
    """
    process = subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, bufsize=0
    )
    assert process.stdout is not None
    if process.stdout.readline() != b"ready\n":
        ChildProcess(process).close(5.0)
        raise MachineError(f"{command[0]} ended with {process.returncode} before it was ready; its error is above.")
    return ChildProcess(process)


def start_alone(command: Sequence[str], output: Path) -> ChildProcess:
    """Start `command` with its output in a new file; it goes on if this process ends."""
    with output.open("xb") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    return ChildProcess(process)


def output_of(command: Sequence[str], stdin: str = "", env: Mapping[str, str] | None = None) -> str:
    """Standard output of a short command that reads `stdin`.  Raises MachineError with its standard error if it fails.

    env: its environment, by default ours.  Raises FileNotFoundError if there is no such command.
    """
    ended = subprocess.run(command, input=stdin, text=True, capture_output=True, check=False, env=env)
    if ended.returncode:
        reason = " ".join(ended.stderr.split()) or f"exit code {ended.returncode}"
        raise MachineError(f"{command[0]} failed: {reason}")
    return ended.stdout


@dataclass(frozen=True)
class Captured:
    """Output and exit code of a command."""

    code: int
    out: str
    err: str


def run_here(command: Sequence[str]) -> int:
    """Run a command that may ask the user, with this terminal and environment; return its exit code."""
    return subprocess.run(command, check=False).returncode


def become(command: Sequence[str]) -> NoReturn:
    """Run a command in place of this process: it gets the terminal's signals, and its exit code is ours."""
    os.execvp(command[0], list(command))  # noqa: S606  # without a shell, on purpose


def run_beside(command: Sequence[str], every_s: float, act: Callable[[], object]) -> int:
    """Run a command with this terminal until it ends or Ctrl-C; call act() meanwhile.  Returns its exit code, or 0."""
    with subprocess.Popen(command) as process:
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(every_s)
                act()
        except KeyboardInterrupt:
            process.terminate()  # it may have been sent to us alone
            return 0


def run_captured(command: Sequence[str], env: Mapping[str, str] | None = None, folder: str | None = None) -> Captured:
    """Run a short command in `folder`, which may fail; from any thread.  env: None for this process's own."""
    ended = subprocess.run(
        command,
        env=env,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="surrogateescape",  # names of files
        capture_output=True,
        check=False,
    )
    return Captured(ended.returncode, ended.stdout, ended.stderr)


TOOLKIT = Path(__file__).resolve().parents[2]


def interpreter(python: str, cwd: Path) -> tuple[str, ...]:
    """The interpreter's words that run `-m MODULE` without importing modules from `cwd`.

    An exception is a `cwd` with the toolkit itself, which may not be importable from elsewhere.
    """
    return (python,) if cwd == TOOLKIT else (python, "-P")


def this_python() -> tuple[str, ...]:
    """interpreter() for this Python in the current folder."""
    return interpreter(sys.executable, Path.cwd())
