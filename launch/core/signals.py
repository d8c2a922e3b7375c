"""Handle the signals that end a launcher, and send those that end its child processes."""

import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from launch.core.terminal import Say


class Hangup(BaseException):
    """The terminal was closed, or a SIGTERM arrived.  Like KeyboardInterrupt, not an Exception."""


@contextmanager
def hangups() -> Iterator[None]:
    """Raise Hangup in the block on SIGTERM, and on SIGHUP unless nohup ignores it."""

    def hang_up(signum: int, frame: FrameType | None) -> None:
        raise Hangup(signal.Signals(signum).name)

    with handling(hang_up, HANGUPS):
        yield


@contextmanager
def hangups_ignored() -> Iterator[None]:
    """Ignore SIGHUP and SIGTERM inside the block: shells and kernels send more than one signal."""
    with handling(signal.SIG_IGN, HANGUPS):
        yield


HANGUPS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def handling(handler: "signal._HANDLER", signals: Sequence[int] = (signal.SIGINT, *HANGUPS)) -> Iterator[None]:
    """Install `handler` for the signals that end a command, except those that nohup or `&` ignored."""
    numbers = [number for number in signals if signal.getsignal(number) != signal.SIG_IGN]
    try:
        before = {number: signal.signal(number, handler) for number in numbers}
    except ValueError:  # only the main thread can handle signals, which in a notebook is not ours
        before = {}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def unless_gone(say: Say) -> Say:
    """Make `say` ignore a closed terminal or pipe."""

    def quietly(text: str) -> None:
        try:
            say(text)
        except (OSError, ValueError):
            return

    return quietly


# Workers inherit this variable and are found by it: torchrun starts each in its own session, which a signal to its
# process group does not reach.
MARK = "LAUNCH_SHELL_MARK"
SAME_REQUEST_S = 1.0


class Ending:
    """Ends one command: passes on the first signal, kills at the next one or after the grace period."""

    def __init__(self, grace_s: float, stop_signal: int | None) -> None:
        self._stop_signal = stop_signal
        self.mark = uuid.uuid4().hex
        self.asked_by: int | None = None
        self._asked_at = 0.0
        self._group: int | None = None
        self._grace_s = grace_s
        self._killer = threading.Timer(grace_s, self._kill)
        # A signal may come while another thread starts the command, or in the middle of a handler.
        self._lock = threading.RLock()

    def begin(self, group: int) -> None:
        """Record the command's process group; a signal may have arrived while it started."""
        with self._lock:
            asked_by, self._group = self.asked_by, group
            if asked_by is not None:
                self._ask(asked_by)

    def on_signal(self, signum: int, _frame: FrameType | None) -> None:
        with self._lock:
            self._on_signal(signum)

    def _on_signal(self, signum: int) -> None:
        if self.asked_by is not None:
            # `timeout`, and a terminal that is closed, send two signals for one request.
            if signum == signal.SIGINT or time.monotonic() - self._asked_at > SAME_REQUEST_S:
                self._kill()
            return
        self.asked_by, self._asked_at = signum, time.monotonic()
        if self._group is not None:
            self._ask(signum)

    def finish(self, code: int) -> None:
        """Clean up after a command that ended with `code`: if it was killed, its children may still be running."""
        self._killer.cancel()
        if code < 0 or self.asked_by is not None:
            self._kill()

    def _ask(self, signum: int) -> None:
        print(f"stopping; saving may take {self._grace_s:g} s.  Press Ctrl-C again to stop at once", file=sys.stderr)
        self._killer.start()
        send(self._stop_signal or signum, self._group)

    def _kill(self) -> None:
        """Kill the process group, and every process with the mark."""
        send(signal.SIGKILL, self._group)
        kill_marked(self.mark)


def ask_to_end(group: int) -> None:
    """Ask a command to save and end.  group: the process id that on_start was called with."""
    send(signal.SIGTERM, group)


def send(signum: int, group: int | None) -> None:
    """Signal a process group, if it still exists."""
    if group is not None:
        with suppress(ProcessLookupError):
            os.killpg(group, signum)


def kill_marked(mark: str) -> None:
    """Kill every process that has `mark` in its environment."""
    give_up = time.monotonic() + 5.0
    # Repeated, as any of them may just be starting another.
    while (left := _marked(mark)) and time.monotonic() < give_up:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _marked(mark: str) -> list[int]:
    """The processes with `mark`.  None without Linux's /proc, where torchrun ends its workers by itself."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has just ended, or belongs to another user
            if mark.encode() in environment.read_bytes():
                found.append(int(environment.parent.name))
    return found
