"""torchrun with the trainer's exit codes: `python -m trainer.torchrun --nproc-per-node 2 -m trainer ...`.

torchrun itself always exits with 1 and a page of output.  Here the exit code is that of the worker that
failed first, and a line is printed only if that worker could not report the reason itself.  The flags are torchrun's.
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
# How long a node waits for the others at the end of our own training, whose ranks end together.
EXIT_WITHIN_S = 60.0

# How workers end because another one has ended: they lost a rank, or torchrun stopped them.
# The higher the number, the less likely it is the cause.
_ASKED = {-signal.SIGTERM, -signal.SIGUSR1, -signal.SIGINT}
_FOLLOWS = {Exit.MACHINE: 1, Exit.INTERRUPTED: 2, STOPPED: 2, **dict.fromkeys(_ASKED, 2)}


@dataclass(frozen=True)
class Death:
    """How one worker ended."""

    rank: int
    code: int  # its exit code, or minus the signal that killed it
    second: int  # when torchrun noticed, in s


def cause(deaths: Sequence[Death]) -> Death:
    """The death that caused the others.  deaths: in the order in which torchrun noticed them, at least one.

    The order of deaths within a second of the first is unreliable, so a worker that failed by itself has priority
    over one that lost a rank or was asked to leave.  Later ones are never the cause: torchrun stops the remaining
    workers, with SIGKILL after 30 s.
    """
    first = min(death.second for death in deaths)
    return min((death for death in deaths if death.second <= first + 1), key=lambda death: _FOLLOWS.get(death.code, 0))


def failed_leaving(codes: Collection[int]) -> bool:
    """Whether any worker failed after all were asked to leave.  codes: like Death.code.

    Losing a rank is no failure if some rank died of the signal before its handler was installed: there was nothing
    to save.
    """
    failed = set(codes) - {Exit.DONE, Exit.INTERRUPTED, STOPPED} - _ASKED
    return bool(failed - {Exit.MACHINE} if _ASKED & set(codes) else failed)


def main(argv: Sequence[str], *, verbose: bool = False) -> int:
    """Run the workers described by torchrun's flags, and return the exit code.  verbose: keep torchrun's log."""
    workers: dict[int, Worker] = {}
    _end_at_once_when_asked()
    _before_torch(argv, verbose=verbose)
    # Imported here because it takes seconds, and a signal in that time must end the process without a traceback.
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
        store = _keep_to_this_machine(args)  # serves until it is deleted
        # torchrun would leave its folder behind.
        with TemporaryDirectory(prefix="torchrun-") as logs:
            args.log_dir = args.log_dir or logs
            run.run(args)
        del store
    except ChildFailedError as failed:
        # In the order in which torchrun noticed them; its time stamps are whole seconds.
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
    """Set variables that torch reads on import, for this process and its workers."""
    if not verbose:  # else the end of one node prints a page of stack frames on every other
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if _module_of(argv) == "trainer":
        libraries.set_defaults(os.environ)


def _keep_safe_path(args: Namespace) -> None:
    """Pass `-P` on to the workers if this process has it: files in the current folder may shadow our modules."""
    if sys.flags.safe_path and args.module and not args.no_python:
        args.training_script_args = ["-P", "-u", "-m", args.training_script, *args.training_script_args]
        args.training_script, args.module, args.no_python = sys.executable, False, True


def _left(signum: int, workers: Mapping[int, Worker], *, reports_all: bool) -> int:
    """The exit code after all workers were asked to leave by `signum`; reports one that failed meanwhile."""
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
    if signum == signal.SIGINT:  # on Ctrl-C the workers save and leave too
        return STOPPED if {STOPPED, -signal.SIGINT} & set(codes.values()) else Exit.INTERRUPTED
    return _code_when_stopped_by(signum)


def _keep_to_this_machine(args: Namespace) -> object:
    """If all ranks are on one machine, serve their rendezvous store on loopback only; returns the store, or None.

    torchrun's own --standalone listens on every address, and unpickles what any client writes there.  The static
    rendezvous pickles nothing, and uses the store that this process already serves.
    """
    standalone = args.standalone
    if not standalone and args.nnodes not in ("1", "1:1"):
        return _served_for_rehearsed_nodes(args)
    if not standalone and (args.rdzv_backend, bool(args.rdzv_endpoint)) not in (("static", False), ("c10d", True)):
        return None
    for name, value in loopback.environment().items():
        os.environ.setdefault(name, value)
    # From torch 2.15 on there is no default port: without --master-port use any.
    port = 0 if standalone or args.master_port is None else args.master_port
    store = loopback.serve_store(port, MEET_WITHIN)
    args.standalone, args.nnodes, args.node_rank = False, "1", 0
    args.rdzv_backend, args.rdzv_endpoint = "static", ""
    args.master_addr, args.master_port = loopback.ADDRESS, store.port
    if standalone:  # the id becomes part of the run folder's name
        args.rdzv_id = f"{datetime.now():{TIME_IN_NAMES}}-{random_letters()}"
    return store


def _served_for_rehearsed_nodes(args: Namespace) -> object:
    """The rendezvous store for several nodes simulated on this machine, if this process hosts it; else None."""
    host, _, port = args.rdzv_endpoint.rpartition(":")
    is_host = "is_host=1" in args.rdzv_conf.split(",")
    if args.rdzv_backend != "c10d" or not is_host or not loopback.is_loopback(host) or not port.isdecimal():
        return None
    return loopback.serve_store(int(port), MEET_WITHIN, host)


def _report(death: Death, *, reports_all: bool) -> int:
    """The exit code for `death`; prints a line about it if the worker printed none.

    reports_all: the worker reports everything but its own death by a signal, and may exit with any code of a user's
    script.
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
    """The exit code after a signal: SIGTERM and SIGUSR1 made the workers save; others give 128 + signum."""
    return Exit.INTERRUPTED if signum in (signal.SIGTERM, signal.SIGUSR1) else 128 + signum


def _end_at_once_when_asked() -> None:
    """Exit immediately on a signal while torch is imported, where an exception could be swallowed or replaced."""

    def end(signum: int, _frame: FrameType | None) -> NoReturn:
        os._exit(_code_when_stopped_by(signum))

    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(signum, end)


def _leave_quietly_when_asked(workers: Collection[int]) -> None:
    """Until torchrun installs its own handlers, let a signal end this process with the right code and no traceback.

    workers: the ranks that were started.
    """

    def leave(signum: int, _frame: FrameType | None) -> NoReturn:
        sys.exit(_code_when_stopped_by(signum))

    def pass_on(signum: int, frame: FrameType | None) -> None:
        if _signal_children(signum):
            return
        if workers:  # all have ended
            from torch.distributed.elastic.multiprocessing.api import SignalException

            raise SignalException("", signal.Signals(signum))
        leave(signum, frame)

    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, leave)
    # SIGUSR1 asks the trainer to save and leave.  torchrun does not handle it, and would kill the workers after 30 s.
    signal.signal(signal.SIGUSR1, pass_on)


def _kill_workers_left() -> None:
    """Kill workers that torchrun left behind because a signal came while it started or stopped them."""
    _signal_children(signal.SIGKILL)


def _signal_children(signum: int) -> bool:
    """Send a signal to every child of this process; returns whether there was one."""
    pid = os.getpid()
    listed = Path(f"/proc/self/task/{pid}/children")  # children of the main thread; Linux only
    children = {int(word) for word in listed.read_text().split()} if listed.exists() else set()
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signum)
    return bool(children)


def _module_of(argv: Sequence[str]) -> str | None:
    """The module that the workers run, from a simple look at the flags: torchrun's parser needs torch."""
    return argv[argv.index("-m") + 1] if "-m" in argv[:-1] else None


@dataclass
class Worker:
    """A worker process on this node."""

    process: subprocess.Popen[bytes]
    siblings: int  # number of workers on this node, including this one
    was_forced: bool = False  # torchrun killed it because it had not left in time


def all_done(workers: Mapping[int, Worker]) -> bool:
    """Whether all workers of this node were started and have exited with 0."""
    codes = [worker.process.poll() for worker in workers.values()]
    return any(worker.siblings == len(codes) for worker in workers.values()) and not any(code != 0 for code in codes)


def keep_workers(workers: dict[int, Worker]) -> None:
    """Record the worker of each rank in `workers` from now on.

    torchrun reports how they ended, but not if it was itself stopped by a signal.
    """
    from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

    start, close = SubprocessHandler.__init__, SubprocessHandler.close

    def start_and_keep(handler: SubprocessHandler, *args: Any, **named: Any) -> None:
        start(handler, *args, **named)
        env = named["env"] if "env" in named else args[2]
        if env["LOCAL_RANK"] == "0":  # the first one, also after a restart
            workers.clear()
        workers[int(env["RANK"])] = Worker(handler.proc, int(env["LOCAL_WORLD_SIZE"]))

    def note_force(handler: SubprocessHandler, death_sig: signal.Signals | None = None) -> None:
        if death_sig == signal.SIGKILL:
            for worker in workers.values():
                worker.was_forced |= worker.process is handler.proc
        close(handler, death_sig)

    SubprocessHandler.__init__, SubprocessHandler.close = start_and_keep, note_force  # type: ignore[assignment,method-assign]


def finish_when_done(workers: Mapping[int, Worker], exit_within_s: float | None) -> None:
    """Make torchrun ignore signals once all workers have exited with 0.

    Otherwise it would skip its exit barrier, leaving the other nodes waiting, and report the job as unfinished.
    exit_within_s: how long to wait for other nodes in that barrier; None: torch's default.
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
    os._exit(exit_code)  # not sys.exit: interpreter shutdown with torch takes two seconds
