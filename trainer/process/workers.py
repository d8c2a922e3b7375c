"""torchrun's workers: how they are started, and how each has ended."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer.process.forks import Command, Fork, Server, serve

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

Process = subprocess.Popen[bytes] | Fork


@dataclass
class Worker:
    """was_forced: torchrun killed it, because it had not left in time."""

    process: Process
    was_forced: bool = False


def keep_workers() -> dict[int, Worker]:
    """The worker of each rank, from now on.  torchrun tells how they ended, but not where a signal ended itself."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

    workers: dict[int, Worker] = {}
    start, close = SubprocessHandler.__init__, SubprocessHandler.close

    def start_and_keep(handler: SubprocessHandler, *args: Any, **named: Any) -> None:
        start(handler, *args, **named)
        env = named["env"] if "env" in named else args[2]
        workers[int(env["RANK"])] = Worker(handler.proc)

    def note_force(handler: SubprocessHandler, death_sig: signal.Signals | None = None) -> None:
        if death_sig == signal.SIGKILL:
            for worker in workers.values():
                worker.was_forced |= worker.process is handler.proc
        close(handler, death_sig)

    SubprocessHandler.__init__, SubprocessHandler.close = start_and_keep, note_force  # type: ignore[assignment,method-assign]
    return workers


def serve_forks(module: str) -> Server | None:
    """What starts ranks of `module` without the seconds that torch takes; None for a module that is not ours.

    Others may do, while they are imported, what no fork should share.
    """
    if module.split(".")[0] != "trainer":
        return None
    return serve(_import_run if module == "trainer" else lambda: None)


def _import_run() -> None:
    import trainer.run  # noqa: F401


def start_as_forks(server: Server) -> None:
    """Has torchrun start workers through `server`, where it can."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

    popen = SubprocessHandler._popen

    def fork(handler: SubprocessHandler, args: tuple[str, ...], env: dict[str, str]) -> Process:
        return _forked(server, handler, args, env) or popen(handler, _as_safe(args), env)

    SubprocessHandler._popen = fork  # type: ignore[assignment,method-assign]


def _as_safe(args: tuple[str, ...]) -> tuple[str, ...]:
    """The command with `-P` where this process has it: what lies in the current folder may be a stranger's."""
    is_python = args[:1] == (sys.executable,) and sys.flags.safe_path
    return (args[0], "-P", *args[1:]) if is_python else args


def _forked(server: Server, handler: SubprocessHandler, args: tuple[str, ...], env: dict[str, str]) -> Fork | None:
    """None for a command that is not `python -u -m MODULE ...`, such as one that numactl binds to a socket."""
    if args[:3] != (sys.executable, "-u", "-m"):
        return None
    stdout, stderr = (None if file is None else str(file.name) for file in (handler._stdout, handler._stderr))
    return server.start(Command(args[3], args[4:], env, stdout, stderr))
