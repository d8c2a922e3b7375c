"""Python processes without the seconds that importing torch takes: forks of one process that has done it."""

import multiprocessing
import os
import random
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

# "__main__" is pytest's own, which each fork would otherwise import for itself.
_IMPORTED = [
    "__main__",
    "pytest",
    "torch._dynamo",  # which the first optimizer would import, for seconds
    "torch.distributed.fsdp",
    "torch.distributed.run",
    "trainer.run",
    "trainer.models.from_torchvision",
]


@cache
def _forks() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    # As every command of the trainer has it.  torch reads it when it is imported, which is in the server.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_CPP_LOG_LEVEL", "ERROR")
        forkserver.ensure_running()
    return context


def queue() -> Any:
    """What warm processes put into it this one gets."""
    return _forks().Queue()


def start(function: Callable[..., None], *args: Any, env: dict[str, str] | None = None) -> BaseProcess:
    """Runs function(*args) in a new process with the environment `env`; None: with this one's."""
    process = _forks().Process(target=_with_env, args=(dict(os.environ) if env is None else env, function, args))
    process.daemon = True  # so that none outlives the tests
    process.start()
    return process


def _with_env(env: dict[str, str], function: Callable[..., None], args: tuple[Any, ...]) -> None:
    os.environ.clear()
    os.environ.update(env)
    multiprocessing.current_process().daemon = False  # which may have no processes of its own, as a training has
    function(*args)


def free_port() -> int:
    """A port nobody listens on at the moment, out of the range that the system uses for outgoing connections."""
    for port in random.sample(range(15_000, 32_000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free")


class Job:
    """`python -m MODULE` in a process for each of `envs`, as far as tests use a subprocess.Popen of torchrun."""

    def __init__(
        self, words: Sequence[str], folder: Path, envs: Sequence[dict[str, str]], module: str = "trainer"
    ) -> None:
        ends = [_forks().Pipe(duplex=False) for _ in ("stdout", "stderr")]
        pipes = [its for _, its in ends]
        self._ranks = [start(_run_module, module, list(words), folder, *pipes, env=env) for env in envs]
        for _, its in ends:
            its.close()
        self.returncode = 0  # of the first rank that failed, once all have ended; minus the signal that ended it
        self.stdout, self.stderr = (os.fdopen(os.dup(mine.fileno())) for mine, _ in ends)
        for mine, _ in ends:
            mine.close()

    @property
    def pid(self) -> int | None:
        """Of the first rank."""
        return self._ranks[0].pid

    def send_signal(self, signum: signal.Signals) -> None:
        """To all ranks that still run."""
        self._send(signum, self._ranks)

    def communicate(self, timeout: float = 120) -> tuple[str, str]:
        """What is printed from now on, once all ranks have ended.  As under torchrun, one that fails ends the others.

        Raises subprocess.TimeoutExpired, and kills them.
        """
        with ThreadPoolExecutor() as threads:
            out, err = (threads.submit(stream.read) for stream in (self.stdout, self.stderr))
            end, left = time.monotonic() + timeout, list(self._ranks)
            while left and wait([rank.sentinel for rank in left], end - time.monotonic()):
                codes = {rank: rank.exitcode for rank in left}
                left = [rank for rank, code in codes.items() if code is None]
                failed = [code for code in codes.values() if code]
                if failed and not self.returncode:
                    self.returncode = failed[0]
                    self._send(signal.SIGTERM, left)
            if left:
                self._send(signal.SIGKILL, left)
                raise subprocess.TimeoutExpired("trainer", timeout)
        for stream in (self.stdout, self.stderr):
            stream.close()
        return out.result(), err.result()

    def _send(self, signum: signal.Signals, ranks: Sequence[BaseProcess]) -> None:
        for rank in ranks:
            assert rank.pid is not None
            if rank.exitcode is None:
                os.kill(rank.pid, signum)


def _run_module(module: str, words: list[str], folder: Path, out: Connection, err: Connection) -> None:
    for stream, end in ((sys.stdout, out), (sys.stderr, err)):
        os.dup2(end.fileno(), stream.fileno())
        end.close()
    os.chdir(folder)
    sys.argv[1:] = words
    runpy.run_module(module, run_name="__main__", alter_sys=True)
