# PYTHON_ARGCOMPLETE_OK
"""`python -m trainer.script ... -- train.py`: run one rank of a user's own training script as a child process.

Unpack the source, install its requirements, run the script, relay its output, and report in one line how it
ended.  Must not import torch, which costs seconds and memory.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from trainer.contract import METRICS, PACE, RESTARTS, RUN_DIR, STOPPED, Exit
from trainer.distributed.ranks import Ranks, read_ranks
from trainer.errors import Interrupted, MachineError, SettingsError, TrainerError, not_writable, one_line, report_end
from trainer.process.parent import end_with_parent
from trainer.process.run_folder import FolderLock, Taken, keep_out
from trainer.script import child
from trainer.script.config import ScriptConfig, parse
from trainer.script.ending import SHOWN_LINES, End, OutcomeFile, end_of, process_start, results_in
from trainer.script.environment import RUN_WORD, command_of, own_port, run_of, script_environment
from trainer.script.pace import PaceFile
from trainer.script.relay import Line, MetricLines, Relay
from trainer.script.unpack import source_folder
from trainer.settings.hidden import without_secrets

# How long a rank that lost its connection waits for the failed rank to report first; torchrun then stops the rest.
# If none reports, for example because a whole node is lost, local rank 0 reports before the others on its node.
FIRST_WAITS_S, OTHERS_WAIT_S = 2.0, 4.0


@dataclass(frozen=True)
class Rank:
    """One rank: its settings, its position in the job, the stop requests it gets, and its outcome file."""

    config: ScriptConfig
    ranks: Ranks
    requests: child.Requests
    outcome_file: OutcomeFile

    @property
    def who(self) -> str:
        """The prefix of messages about this rank, such as "rank 1: "; empty if it is the only one."""
        if self.ranks.world_size == 1:
            return ""
        kind = "node" if self.config.processes == "one" else "rank"
        return f"{kind} {self.ranks.rank}: "

    @property
    def is_alone(self) -> bool:
        """Whether this is the only process of the training."""
        return self.ranks.world_size == 1 and self.config.processes == "torchrun"

    @property
    def max_silence_s(self) -> float:
        """Seconds without output after which to stop the script; 0: no limit, as only rank 0 usually prints."""
        return self.config.max_silence_s if self.ranks.is_head else 0.0


def main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Run one rank of the script.  Return its exit code, or one of trainer.contract.Exit."""
    requests = child.Requests()
    requests.listen(partial(_interrupt, requests))
    try:
        config, ranks = parse(argv), read_ranks(env)
        outcome_file = OutcomeFile(config.run_dir, config.job, process_start(), ranks.is_head, run_of(ranks, env))
        rank = Rank(config, ranks, requests, outcome_file)
    except Interrupted:  # maybe because another rank failed, which cannot be known here
        return requests.code
    except TrainerError as error:
        report_end(error.code, str(error))
        return error.code
    try:
        with _own_folder(rank):
            return _run(rank, env)
    except Taken as error:  # outcome.json belongs to the other run
        report_end(error.code, str(error))
        return error.code
    except Interrupted as error:
        return _ended(rank, End(requests.code, str(error)), [])
    except TrainerError as error:
        return _not_begun(rank, error)


@contextmanager
def _own_folder(rank: Rank) -> Iterator[None]:
    """Keep other runs out of the run folder inside the block.  Raises Taken, or the error of not_writable().

    Rank 0 takes the lock for all ranks; the others, which may be on other nodes, only check it.
    """
    folder = rank.config.run_dir
    if not rank.ranks.is_head:
        keep_out(folder, rank.outcome_file.run)
        yield
        return
    lock = FolderLock(folder, rank.outcome_file.run)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.take()
    except OSError as error:
        raise not_writable(folder, error) from error
    try:
        yield
    finally:
        lock.release()


def _interrupt(requests: child.Requests) -> NoReturn:
    raise Interrupted("stopped by Ctrl-C" if requests.asked == signal.SIGINT else "asked to leave before it began")


def _run(rank: Rank, env: Mapping[str, str]) -> int:
    config = rank.config
    try:
        rank.outcome_file.open()
    except OSError as error:
        raise not_writable(config.run_dir, error) from error
    top = source_folder(config)
    cwd = top / config.cwd
    _check(rank, cwd)
    script_env = script_environment(config, rank.ranks, env)
    if config.requirements:
        from trainer.script import packages  # slow to import, and most scripts do not need it

        assert config.work is not None
        layer = packages.layer_for(top / config.requirements, config.work, config.digest, rank.outcome_file.began)
        script_env |= packages.variables(layer, script_env)
    relay, metrics = _relay(rank)
    command = [sys.executable, *command_of(config, script_env)]
    before = results_in(config.run_dir)
    try:
        ended = child.run(command, cwd, script_env, relay, rank.requests, rank.max_silence_s)
    except OSError as error:
        raise MachineError(f"cannot start {one_line(config.name)} ({error.strerror}); start again.") from error
    metrics.close()
    relay.tail.close()
    lines = relay.tail.lines()
    end = end_of(ended, one_line(config.name), lines, is_alone=rank.is_alone)
    if end.code == Exit.DONE and rank.ranks.is_head:
        is_kept = results_in(config.run_dir) != before or bool(before and script_env[RESTARTS] != "0")
        # Without --source the script runs on the user's own machine, where files are not lost.
        _warn_of_done(one_line(config.name), is_asked=bool(ended.asked), is_kept=is_kept or config.source is None)
    return _ended(rank, end, lines)


def _warn_of_done(name: str, *, is_asked: bool, is_kept: bool) -> None:
    """Warn about surprises after a successful script.  is_kept: it wrote something to the run folder."""
    if is_asked:
        _warn(
            f"{name} was asked to leave and ended with exit code 0, so it counts as done and is not started again; to "
            f"be started again it must exit with {int(Exit.INTERRUPTED)}."
        )
    elif not is_kept:
        _warn(
            f"{name} left nothing in its run folder, ${RUN_DIR}, and files elsewhere are lost with the node; "
            f"write to that folder, or pass the folder as {RUN_WORD} among the arguments."
        )


def _check(rank: Rank, cwd: Path) -> None:
    """Raise SettingsError if the script does not exist, MachineError if the port is in use."""
    config, ranks = rank.config, rank.ranks
    if not cwd.is_dir():
        raise SettingsError(f"--cwd {one_line(config.cwd)} is not a folder in the source.")
    if config.words[0] != "-m" and not (cwd / config.words[0]).exists():
        there = sorted(path.name for path in cwd.glob("*.py"))
        raise SettingsError(
            f"{one_line(config.words[0])} is not in {one_line(cwd, 300)}; there are "
            f"{', '.join(there[:10]) or 'no Python files'}."
        )
    if config.processes == "one":
        _check_alone(ranks)


def _check_alone(ranks: Ranks) -> None:
    """Raise SettingsError if several ranks of a node would each start all processes; MachineError as in _check."""
    if ranks.local_world_size > 1:
        raise SettingsError(
            f"--processes one needs one process on each node, not {ranks.local_world_size}; give --nproc-per-node 1."
        )
    if ranks.is_head:
        _try_port(own_port(ranks.master_port))


def _try_port(port: int) -> None:
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise MachineError(
                f"port {port}, which the script's processes need, is in use on this node; give torchrun another "
                "--master-port, from which this port is computed, or start again."
            ) from error


def _relay(rank: Rank) -> tuple[Relay, MetricLines]:
    config = rank.config
    too_much = (
        f"{rank.who}more than {config.max_output_mb:,} MB of output, which is --max-output-mb; the rest is not shown."
    )
    relay = Relay(config.max_output_mb * 1_000_000, too_much, _warn)
    metrics = MetricLines(config.run_dir / METRICS, _warn, PaceFile(config.run_dir / PACE))
    if rank.ranks.is_head:
        relay.listen = metrics.feed
    return relay, metrics


def _warn(warning: str) -> None:
    with suppress(OSError):
        os.write(2, f"warning: {warning}\n".encode())


# ---- the end


def _ended(rank: Rank, end: End, lines: Sequence[Line]) -> int:
    """Record and report how this rank ended, unless another rank does.  Return the exit code."""
    if end.follows and _another_reports(rank):
        return end.code
    is_reported = rank.outcome_file.has_failed()
    rank.outcome_file.write(end.code, rank.who + end.sentence, follows=end.follows)
    if end.code == Exit.DONE or is_reported:
        return end.code
    if end.code in (Exit.INTERRUPTED, STOPPED):
        if rank.ranks.is_head and end.code == Exit.INTERRUPTED:
            report_end(end.code, end.sentence)
        return end.code
    report_end(end.code, rank.who + end.sentence)
    _show([line.text for line in lines[-SHOWN_LINES:]])
    return end.code


def _another_reports(rank: Rank) -> bool:
    """Wait briefly for the rank that failed first; return whether it reported, or this rank was asked to stop."""
    until = time.monotonic() + (FIRST_WAITS_S if rank.ranks.local_rank == 0 else OTHERS_WAIT_S)
    while time.monotonic() < until:
        if rank.requests.asked or rank.outcome_file.has_failed():
            return True
        time.sleep(0.05)
    return False


def _not_begun(rank: Rank, error: TrainerError) -> int:
    """Report why the script could not start, once per node.  Return the exit code."""
    is_reported = error.is_reported or rank.outcome_file.has_failed()
    rank.outcome_file.write(error.code, str(error))
    if not is_reported:
        report_end(error.code, str(error))
        _show([line for note in getattr(error, "__notes__", []) for line in note.splitlines()])
    return error.code


def _show(lines: Sequence[str]) -> None:
    """Print the last lines, indented, in one write, since other ranks write to the same stream."""
    text = "".join(f"  {without_secrets(line)}\n" for line in lines)
    with suppress(OSError):  # e.g. a full disk
        sys.stderr.write(text)
        sys.stderr.flush()


def leave(code: int) -> NoReturn:
    """Exit this process immediately, without waiting for its threads."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def start(argv: Sequence[str], env: MutableMapping[str, str]) -> NoReturn:
    """Entry point of `python -m trainer.script`."""
    sys.unraisablehook = child.say_unless_asked
    end_with_parent(env)
    leave(main(argv, env))


if __name__ == "__main__":
    start(sys.argv[1:], os.environ)
