"""torchrun's workers: how they are started, and how each has ended."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer.process.parent import ignore_requests_to_leave

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler


@dataclass
class Worker:
    """was_forced: torchrun killed it, because it had not left in time; siblings: how many this node has, with it."""

    process: subprocess.Popen[bytes]
    siblings: int
    was_forced: bool = False


def all_done(workers: Mapping[int, Worker]) -> bool:
    """Whether all workers of this node have been started and have ended with 0."""
    codes = [worker.process.poll() for worker in workers.values()]
    return any(worker.siblings == len(codes) for worker in workers.values()) and not any(code != 0 for code in codes)


def keep_workers(workers: dict[int, Worker]) -> None:
    """Puts the worker of each rank into `workers`, from now on.

    torchrun reports how they ended, but not where a signal ended itself.
    """
    from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

    start, close = SubprocessHandler.__init__, SubprocessHandler.close

    def start_and_keep(handler: SubprocessHandler, *args: Any, **named: Any) -> None:
        start(handler, *args, **named)
        env = named["env"] if "env" in named else args[2]
        if env["LOCAL_RANK"] == "0":  # the first, also of those that torchrun starts again
            workers.clear()
        workers[int(env["RANK"])] = Worker(handler.proc, int(env["LOCAL_WORLD_SIZE"]))

    def note_force(handler: SubprocessHandler, death_sig: signal.Signals | None = None) -> None:
        if death_sig == signal.SIGKILL:
            for worker in workers.values():
                worker.was_forced |= worker.process is handler.proc
        close(handler, death_sig)

    SubprocessHandler.__init__, SubprocessHandler.close = start_and_keep, note_force  # type: ignore[assignment,method-assign]


def finish_when_done(workers: Mapping[int, Worker], exit_within_s: float | None) -> None:
    """Has a signal change nothing once all workers have ended with 0.

    torchrun would leave its last barrier out, where the other nodes then wait, and end as if the job were not done.
    exit_within_s: how long to wait there for nodes that do not come; None: as long as torch does.
    """
    from torch.distributed.elastic.agent.server.api import DEFAULT_ROLE, RunResult, WorkerState
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.launcher import api

    class Agent(LocalElasticAgent):
        def run(self, role: str = DEFAULT_ROLE) -> RunResult:
            try:
                result: RunResult = super().run(role)
            except SignalException:
                if not all_done(workers):
                    raise
                self._exit_barrier()
                return RunResult(state=WorkerState.SUCCEEDED)
            return result

        def _exit_barrier(self) -> None:
            ignore_requests_to_leave()
            if exit_within_s is not None:
                self._exit_barrier_timeout = exit_within_s
            super()._exit_barrier()  # type: ignore[no-untyped-call]

    vars(api)["LocalElasticAgent"] = Agent
