"""The script's process: start it, ask it to stop, kill it after too long a silence, and clean up after it."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from trainer.contract import STOP_WITHIN_S, STOPPED, Exit
from trainer.errors import Interrupted
from trainer.script.ending import Ended
from trainer.script.relay import ERR, OUT, Relay

# A second before torchrun kills this process, so that there is time to say what happened.
FORCE_AFTER_S = STOP_WITHIN_S - 1.0
# How long to read what is left in the pipes: a process that was not found may still hold them open.
_DRAIN_WITHIN_S = 5.0
# https://man7.org/linux/man-pages/man2/prctl.2.html
_SUBREAPER = 36


class Script(subprocess.Popen[bytes]):
    """A Popen whose exit code is collected by wait() only."""

    def send_signal(self, sig: int) -> None:
        """Send `sig` without polling: Popen's method may reap the process while run() is waiting for it."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)


@dataclass
class Requests:
    """Stop requests, received as signals.  They are passed to the script once, as SIGTERM.

    before: called for a request that arrives before the script is started; begins: the script is being started, and
    gets the request as soon as it exists.
    """

    process: Script | None = None
    before: Callable[[], None] = lambda: None
    begins: bool = False
    asked: int = 0
    since: float = 0.0  # time.monotonic() of the request
    was_forced: bool = False

    @property
    def code(self) -> int:
        """The exit code if the request came before the script was started."""
        return STOPPED if self.asked == signal.SIGINT else Exit.INTERRUPTED

    def listen(self, before: Callable[[], None]) -> None:
        """Install the signal handlers.  before: raises Interrupted; called if the script has not been started yet."""
        self.before = before

        def on_signal(signum: int, _frame: FrameType | None) -> None:
            if self.asked:
                if signum == signal.SIGINT:  # the second Ctrl-C does not wait
                    self.force()
                return
            self.ask(signum, time.monotonic())
            if not self.begins:
                self.before()

        for signum in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP):
            if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:  # ignored under nohup
                signal.signal(signum, on_signal)

    def begin(self) -> None:
        """Stop raising from signal handlers, as a fork follows; raise now if an earlier exception was lost."""
        self.begins = True
        if self.asked:
            self.before()

    def ask(self, signum: int, now: float) -> None:
        """Ask the script to stop, but not its children: data loader workers must run until it has saved."""
        self.asked, self.since = signum, now
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)

    def force(self) -> None:
        """Kill the script."""
        self.was_forced = True
        if self.process is not None:
            self.process.kill()


@dataclass
class Watch:
    """Check every second whether the script must be stopped.  max_silence_s: 0 for no limit."""

    requests: Requests
    relay: Relay
    max_silence_s: float
    silent_s: float = 0.0
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Check until `over` is set."""
        every_s = min(1.0, self.max_silence_s / 4 or 1.0)
        while not self.over.wait(every_s):
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Check once.  now: time.monotonic()."""
        if self.requests.asked:
            if now - self.requests.since >= FORCE_AFTER_S:
                self.requests.force()
            return
        silence = now - self.relay.last_output
        if self.max_silence_s and silence >= self.max_silence_s:
            self.silent_s = silence
            self.requests.ask(signal.SIGTERM, now)


def run(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], relay: Relay, requests: Requests, max_silence_s: float
) -> Ended:
    """Run the script to its end, then kill what it left running.  Main thread only.  Raises OSError."""
    _adopt_orphans()
    requests.begin()
    process = Script(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        bufsize=0, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    guard = _guard(process.pid)
    requests.process = process
    if requests.asked:  # between the fork and now
        process.send_signal(signal.SIGTERM)
    relay.last_output = time.monotonic()
    pumps = [relay.start(process.stdout.fileno(), OUT), relay.start(process.stderr.fileno(), ERR)]
    watch = Watch(requests, relay, max_silence_s)
    watching = threading.Thread(target=watch.run, name="watch", daemon=True)
    watching.start()
    if sys.platform == "linux":
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # not reaped, so that its PID is not reused
    else:
        process.wait()
    watch.over.set()
    watching.join()
    asked = requests.asked
    requests.process = None  # its PID may soon be reused
    _kill_group(process.pid)
    code = process.wait()
    guard.kill()
    guard.wait()
    _kill_children()
    until = time.monotonic() + _DRAIN_WITHIN_S
    for pump in pumps:
        pump.join(max(0.0, until - time.monotonic()))
    return Ended(code, 0 if watch.silent_s else asked, watch.silent_s, requests.was_forced)


def say_unless_asked(lost: "sys.UnraisableHookArgs") -> None:
    """A sys.unraisablehook that does not print Interrupted, which a signal may raise inside __del__ or a callback.

    The request itself is not lost: see Requests.begin().
    """
    if not isinstance(lost.exc_value, Interrupted):
        sys.__unraisablehook__(lost)


def _adopt_orphans() -> None:
    """Make orphaned descendants of the script children of this process, which can then find them; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _guard(group: int) -> "subprocess.Popen[bytes]":
    """Start a shell that kills the script's process group if this process dies, which closes the shell's stdin."""
    return subprocess.Popen(
        ["/bin/sh", "-c", f"read _; kill -9 -{group}"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _kill_children() -> None:
    """Kill orphans that the script started in other sessions; Linux only."""
    while left := _children():
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> list[int]:
    found: list[int] = []
    for file in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, file.read_text().split())
    return found
