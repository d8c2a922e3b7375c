"""Starts `python -m MODULE` as forks of a process that has imported what takes long, torch above all.

A server is forked from this process once it has imported torch, and before it has opened sockets or files.  Each fork
of the server becomes a child of this process, which waits for it and signals it as if it had started it itself.

    this process -- server -- (a process that ends at once) -- the module's process, adopted by this process

CUDA works in a fork if it was not initialized before, and importing torch does not initialize it.
Linux only, where a process can adopt (PR_SET_CHILD_SUBREAPER); elsewhere, and whenever something fails, the module is
to be started as usual.
"""

from __future__ import annotations

import ctypes
import gc
import io
import json
import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn, TextIO

_ADOPT = 36  # PR_SET_CHILD_SUBREAPER, of prctl(2)
_PAUSE_S = 0.02
# What a new process heeds, whatever this one does about it.
_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCHLD,
)


@dataclass(frozen=True)
class Command:
    """What runs in a fork: `python -u -m module words...`, in a session of its own.

    env: its whole environment; stdout, stderr: files to write to instead of this process's.
    """

    module: str
    words: Sequence[str]
    env: Mapping[str, str]
    stdout: str | None = None
    stderr: str | None = None


class Fork:
    """A process, as far as torch uses a subprocess.Popen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, or minus the signal it died of; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """As poll(), once it has ended.  Raises subprocess.TimeoutExpired after `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired("a fork", timeout or 0.0)
            time.sleep(_PAUSE_S)
        return code

    def send_signal(self, signum: int) -> None:
        """Nothing happens to one that has ended."""
        if self.poll() is None:
            os.kill(self.pid, signum)


class Server:
    """Starts commands; pid: of the server itself, a child of this process that is no worker and ends with it.

    requests, answers: ends of its pipes.
    """

    def __init__(self, pid: int, requests: int, answers: int) -> None:
        self.pid = pid
        self._requests, self._answers = os.fdopen(requests, "w"), os.fdopen(answers)

    def start(self, command: Command) -> Fork | None:
        """Runs `command`; None if it cannot, whatever the reason."""
        if not _adopt(True):
            return None
        try:
            self._requests.write(json.dumps(asdict(command)) + "\n")
            self._requests.flush()
            pid = int(self._answers.readline() or 0)
        except OSError:
            return None
        finally:
            _adopt(False)  # what a worker leaves behind is init's
        return Fork(pid) if pid else None

    def close(self) -> None:
        """Ends the server; what it has started stays."""
        with suppress(OSError):  # a request that was not read
            self._requests.close()
        self._answers.close()
        os.waitpid(self.pid, 0)


def serve(prepare: Callable[[], object]) -> Server | None:
    """The server, which calls prepare() to import more; None where there can be none."""
    if sys.platform != "linux":
        return None
    requests, ask = os.pipe()
    answers, answer = os.pipe()
    with _no_signals():
        pid = os.fork()
        if pid == 0:
            for signum in _SIGNALS:
                signal.signal(signum, signal.SIG_DFL if signum == signal.SIGCHLD else signal.SIG_IGN)
    for end in (requests, answer) if pid else (ask, answers):
        os.close(end)
    if pid == 0:
        _serve(requests, answer, prepare)
    return Server(pid, ask, answers)


def _serve(requests: int, answer: int, prepare: Callable[[], object]) -> NoReturn:
    """Forks once for each line that comes, until the process at the other end is gone."""
    try:
        parent = os.getppid()
        _close_others(requests, answer)
        prepare()
        gc.freeze()  # or the first collection in each fork would copy every page that holds an object
        with os.fdopen(requests) as lines:
            for line in lines:
                os.write(answer, b"%d\n" % _fork_twice(Command(**json.loads(line)), (requests, answer), parent))
    finally:
        os._exit(0)  # in silence: the caller does without, and then learns what is wrong


def _close_others(*kept: int) -> None:
    """Closes what this process has from the one that it was forked from, as subprocess.Popen would: all but `kept`.

    Not all numbers up to the limit, which in containers may be a thousand million.
    """
    for number in {int(entry.name) for entry in Path("/proc/self/fd").iterdir()} - {0, 1, 2, *kept}:
        with suppress(OSError):  # the listing's own
            os.close(number)


def _fork_twice(command: Command, pipes: Sequence[int], adopter: int) -> int:
    """The process of `command`, whose parent has ended when this returns; 0 if it could not be set up.

    pipes: of the server; adopter: the process that it is to be a child of.
    """
    heard, tell = os.pipe()
    between = os.fork()
    if between == 0:
        between = os.getpid()
        if os.fork() == 0:
            for end in (*pipes, heard):  # the end of the server is that of its answers, and no fork reads for it
                os.close(end)
            _run(command, tell, between, adopter)
        os._exit(0)
    os.close(tell)
    os.waitpid(between, 0)
    with os.fdopen(heard) as told:
        return int(told.read() or 0)


def _run(command: Command, tell: int, between: int, adopter: int) -> NoReturn:
    """Becomes `command`, and writes its process id to `tell` once it may be signalled.

    between: the parent that is about to end.  Without a word it ends where `adopter` has not become its parent.
    """
    code = 1
    try:
        os.setsid()
        for signum in _SIGNALS:
            signal.signal(signum, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _redirect(command)
        os.environ.clear()
        os.environ.update(command.env)
        while os.getppid() == between:  # the module may look who its parent is
            time.sleep(0.001)
        if os.getppid() != adopter:  # a signal ended it meanwhile: no process would wait for this one, nor end it
            os._exit(code)
        os.write(tell, b"%d" % os.getpid())
        os.close(tell)
        sys.argv[1:] = command.words
        runpy.run_module(command.module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = _code_of(end)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # never back into the server's own code


def _redirect(command: Command) -> None:
    """Standard output and error, unbuffered as by `python -u`."""
    for path, number in ((command.stdout, 1), (command.stderr, 2)):
        if path is not None:
            file = os.open(path, os.O_WRONLY | os.O_APPEND)
            os.dup2(file, number)
            os.close(file)
    sys.stdout, sys.stderr = _unbuffered(sys.stdout, 1), _unbuffered(sys.stderr, 2)


def _unbuffered(stream: TextIO, number: int) -> TextIO:
    raw: Any = io.FileIO(number, "w", closefd=False)
    return io.TextIOWrapper(raw, stream.encoding, stream.errors, write_through=True)


def _code_of(end: SystemExit) -> int:
    """As Python's own: None is 0, and what is no number is printed."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF
    print(end.code, file=sys.stderr)
    return 1


@contextmanager
def _no_signals() -> Iterator[None]:
    """Signals wait, so that none finds a process half forked with handlers that are another's."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _adopt(whether: bool) -> bool:
    """Has this process become the parent of its descendants whose own parent ends; returns whether it works."""
    return bool(ctypes.CDLL(None).prctl(_ADOPT, int(whether), 0, 0, 0) == 0)
