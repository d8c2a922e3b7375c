"""torchrun that ends with our exit codes: `python -m trainer.torchrun --nproc-per-node 2 -m trainer ...`.

torchrun itself ends with 1 whatever happened, below a page about it.  Here the exit code is that of the
worker whose failure the others followed from, and a line is added only where that worker could not say
why it died.  Flags are torchrun's own.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from trainer.contract import SCRIPT_WORKER, STOPPED, TIME_IN_NAMES, Exit, random_letters
from trainer.distributed import loopback
from trainer.process import libraries
from trainer.process.parent import TORCHRUN_WITHIN_S, end_with_parent, ignore_requests_to_leave

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler


MEET_WITHIN = timedelta(minutes=5)
# How long a node of our own training, whose ranks end together, waits at the end for one that may be lost.
EXIT_WITHIN_S = 60.0

# What a worker ends with because another one is gone: it lost a rank, or torchrun asked it to leave.
# The higher the number, the less such an end explains.
_ASKED = {-signal.SIGTERM, -signal.SIGUSR1, -signal.SIGINT}
_FOLLOWS = {Exit.MACHINE: 1, Exit.INTERRUPTED: 2, STOPPED: 2, **dict.fromkeys(_ASKED, 2)}


@dataclass(frozen=True)
class Death:
    """How one worker ended.  code: its exit code, or minus the signal it died of; second: when it was seen, in s."""

    rank: int
    code: int
    second: int


def cause(deaths: Sequence[Death]) -> Death:
    """The first cause among several deaths.  deaths: in the order in which they were seen, at least one.

    Deaths within a second of the first may have been seen in any order, so a worker that failed for a
    reason of its own goes before one that lost a rank or was asked to leave.  Later ones are never the
    cause: torchrun ends the remaining workers, with SIGKILL after 30 s.
    """
    first = min(death.second for death in deaths)
    return min((death for death in deaths if death.second <= first + 1), key=lambda death: _FOLLOWS.get(death.code, 0))


def failed_leaving(codes: Collection[int]) -> bool:
    """Whether some worker failed though all were asked to leave.  codes: how they ended, as Death has them.

    One that lost a rank has not, if a rank had not yet begun to listen: there was nothing to save.
    """
    failed = set(codes) - {Exit.DONE, Exit.INTERRUPTED, STOPPED} - _ASKED
    return bool(failed - {Exit.MACHINE} if _ASKED & set(codes) else failed)


def main(argv: Sequence[str], *, verbose: bool = False) -> int:
    """Runs the workers that torchrun's flags describe; returns the exit code.  verbose: keep torchrun's own log."""
    workers: dict[int, Worker] = {}
    _end_at_once_when_asked()
    _before_torch(argv, verbose=verbose)
    # Imported here because it takes seconds, and a signal meanwhile must end this quietly.
    from torch.distributed import DistError, run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError

    _leave_quietly_when_asked(workers)
    args = run.parse_args(list(argv))
    logging.disable(logging.NOTSET if verbose else logging.ERROR)
    keep_workers(workers)
    module = args.training_script if args.module else ""
    _keep_safe_path(args)
    finish_when_done(workers, EXIT_WITHIN_S if module == "trainer" else None)
    reports_all = module == SCRIPT_WORKER
    try:
        store = _keep_to_this_machine(args)  # as long as this name has it, it serves
        # torchrun would leave its folder behind.
        with TemporaryDirectory(prefix="torchrun-") as logs:
            args.log_dir = args.log_dir or logs
            run.run(args)
        del store
    except ChildFailedError as failed:
        # A dict keeps the order in which torchrun saw them; its time stamps are whole seconds.
        deaths = [Death(rank, f.exitcode, f.timestamp) for rank, f in failed.failures.items()]
        return _report(cause(deaths), reports_all=reports_all)
    except SignalException as stopped:
        return _left(stopped.sigval, workers, reports_all=reports_all)
    except (RendezvousError, DistError, OSError) as error:
        return _complain(
            Exit.MACHINE, f"the workers could not meet: {error}; check the address and that its port is free."
        )
    except ValueError as error:
        return _complain(Exit.SETTINGS, f"torchrun refused its flags: {error}")
    finally:
        _kill_workers_left()
    return Exit.DONE


def _before_torch(argv: Sequence[str], *, verbose: bool) -> None:
    """Set what torch reads from the environment while it is imported, for this process and its workers."""
    if not verbose:  # or the end of one node is a page about stack frames on every other
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if _module_of(argv) == "trainer":
        libraries.set_defaults(os.environ)


def _keep_safe_path(args: Namespace) -> None:
    """Starts the workers with `-P` where this process has it: the current folder may have files named like ours."""
    if sys.flags.safe_path and args.module and not args.no_python:
        args.training_script_args = ["-P", "-u", "-m", args.training_script, *args.training_script_args]
        args.training_script, args.module, args.no_python = sys.executable, False, True


def _left(signum: int, workers: Mapping[int, Worker], *, reports_all: bool) -> int:
    """The exit code after all workers were asked to leave by `signum`; names one that was lost then."""
    if all_done(workers):
        return Exit.DONE
    codes = {rank: worker.process.poll() or 0 for rank, worker in workers.items()}
    if failed_leaving(codes.values()):
        death = cause([Death(rank, code, 0) for rank, code in codes.items() if code])
        if workers[death.rank].was_forced:
            return _complain(
                Exit.MACHINE,
                f"rank {death.rank} hung when it was asked to stop, and was killed before it could save. "
                "Start again to resume from the previous checkpoint.",
            )
        return _report(death, reports_all=reports_all)
    if signum == signal.SIGINT:  # on Ctrl-C, too, the workers save and leave
        return STOPPED if {STOPPED, -signal.SIGINT} & set(codes.values()) else Exit.INTERRUPTED
    return _code_when_stopped_by(signum)


def _keep_to_this_machine(args: Namespace) -> object:
    """For ranks of one machine: serves the store where they meet on loopback alone; returns it, or None.

    torchrun's own --standalone listens on every address, and unpickles what anybody writes there.  The static
    rendezvous pickles nothing, and finds the store that this process already has.
    """
    standalone = args.standalone
    if not standalone and args.nnodes not in ("1", "1:1"):
        return _served_for_rehearsed_nodes(args)
    if not standalone and (args.rdzv_backend, bool(args.rdzv_endpoint)) not in (("static", False), ("c10d", True)):
        return None
    for name, value in loopback.environment().items():
        os.environ.setdefault(name, value)
    # From torch 2.15 on there is no usual port: without --master-port any will do.
    port = 0 if standalone or args.master_port is None else args.master_port
    store = loopback.serve_store(port, MEET_WITHIN)
    args.standalone, args.nnodes, args.node_rank = False, "1", 0
    args.rdzv_backend, args.rdzv_endpoint = "static", ""
    args.master_addr, args.master_port = loopback.ADDRESS, store.port
    if standalone:  # which names the run folder
        args.rdzv_id = f"{datetime.now():{TIME_IN_NAMES}}-{random_letters()}"
    return store


def _served_for_rehearsed_nodes(args: Namespace) -> object:
    """The store where nodes of this machine meet, such as a rehearsal's; None for others, and for who only joins it."""
    host, _, port = args.rdzv_endpoint.rpartition(":")
    is_host = "is_host=1" in args.rdzv_conf.split(",")
    if args.rdzv_backend != "c10d" or not is_host or not loopback.is_loopback(host) or not port.isdecimal():
        return None
    return loopback.serve_store(int(port), MEET_WITHIN, host)


def _report(death: Death, *, reports_all: bool) -> int:
    """The exit code for `death`; prints a line about it if its worker printed none.

    reports_all: the worker reports every end but its own by a signal; its exit code may be any, a user's script's.
    """
    if death.code == -signal.SIGUSR1:  # asked to leave before it could listen: there was nothing to save
        return Exit.INTERRUPTED
    if death.code < 0:
        name = signal.Signals(-death.code).name
        hint = "; the usual reason is too little memory" if death.code == -signal.SIGKILL else ""
        return _complain(Exit.MACHINE, f"rank {death.rank} was killed by {name}{hint}. Start again to resume.")
    if not reports_all and (death.code == Exit.BUG or death.code not in set(Exit)):
        return _complain(death.code, f"rank {death.rank} ended with exit code {death.code}; its own output is above.")
    return death.code


def _complain(code: int, sentence: str) -> int:
    print(f"error: {sentence}", file=sys.stderr)
    return code


def _code_when_stopped_by(signum: int) -> int:
    """SIGTERM and SIGUSR1 mean save and leave, which the workers have done; other signals end as in a shell."""
    return Exit.INTERRUPTED if signum in (signal.SIGTERM, signal.SIGUSR1) else 128 + signum


def _end_at_once_when_asked() -> None:
    """While torch is imported: an exception may become another one there, as in a class's __set_name__."""

    def end(signum: int, _frame: FrameType | None) -> NoReturn:
        os._exit(_code_when_stopped_by(signum))

    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(signum, end)


def _leave_quietly_when_asked(workers: Collection[int]) -> None:
    """Until torchrun installs its own handlers, a signal ends this process with the right code and no traceback.

    workers: the ranks that were started.
    """

    def leave(signum: int, _frame: FrameType | None) -> NoReturn:
        sys.exit(_code_when_stopped_by(signum))

    def pass_on(signum: int, frame: FrameType | None) -> None:
        if _signal_children(signum):
            return
        if workers:  # which have all ended
            from torch.distributed.elastic.multiprocessing.api import SignalException

            raise SignalException("", signal.Signals(signum))
        leave(signum, frame)

    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, leave)
    # As the trainer: save and leave.  torchrun does not know it, and gives workers 30 s where it ends them itself.
    signal.signal(signal.SIGUSR1, pass_on)


def _kill_workers_left() -> None:
    """Ends workers that torchrun left behind because a signal came while it started or stopped them."""
    _signal_children(signal.SIGKILL)


def _signal_children(signum: int) -> bool:
    """Signals every child of this process; returns whether there was one."""
    pid = os.getpid()
    listed = Path(f"/proc/self/task/{pid}/children")  # of the main thread, whichever asks; Linux only
    children = {int(word) for word in listed.read_text().split()} if listed.exists() else set()
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signum)
    return bool(children)


def _module_of(argv: Sequence[str]) -> str | None:
    """The module that the workers run, as far as one sees without torch."""
    return argv[argv.index("-m") + 1] if "-m" in argv[:-1] else None


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


if __name__ == "__main__":
    end_with_parent(os.environ, within_s=TORCHRUN_WITHIN_S, at_last=_kill_workers_left)
    exit_code = main(sys.argv[1:], verbose="LOGLEVEL" in os.environ)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)  # not sys.exit: the interpreter takes two seconds to tear torch's modules down
