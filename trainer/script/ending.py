"""How a script ended, as an exit code and a message, and outcome.json, which records both.

The script's exit code is passed on unchanged; SCRIPTS.md lists the exceptions.
"""

import os
import re
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trainer import outcome
from trainer.contract import METRICS, OUTCOME, PACE, STOP_WITHIN_S, STOPPED, Exit
from trainer.errors import one_line
from trainer.outcome import Outcome, state_of
from trainer.process.run_folder import IN_USE, another
from trainer.script.relay import ERR, Line
from trainer.settings.hidden import without_secrets

SHOWN_LINES = 30
_LONGEST_REASON = 300

# Messages of torch and its libraries on a rank that lost another rank or could not reach it.  Python's own messages for
# a broken connection may be about anything, such as a download, so lines with its exception names or errno don't count.
_PYTHONS = r"^(?!.*(ConnectionResetError|ConnectionAbortedError|BrokenPipeError|\[Errno )).*"
_LOST = re.compile(
    rf"{_PYTHONS}(Connection (closed|reset) by peer|Broken pipe)|Connection was likely closed|gloo/transport/\w+/"
    r"|Application timeout caused pair closure|Timed out waiting \d+ms for (send|recv) operation"
    r"|Dist(Network|Store)Error|client socket has (failed|timed out)|failed to recv, got 0 bytes"
    r"|nccl(System|Remote|InProgress)\w*|NCCL communicator was aborted|Watchdog caught collective operation timeout"
    r"|Some NCCL operations have failed or timed out"
)
_PORT_IS_TAKEN = re.compile(r"EADDRINUSE|[Aa]ddress already in use")
# Message of a torchrun that the script is, or starts.
_LOST_A_PROCESS = re.compile(r"Signal \d+ \((SIG\w+)\) received by PID")
# Messages of a script that does not handle the request to stop.
_ASKED = re.compile(r"SIGTERM|SignalException|KeyboardInterrupt|Terminated|received signal|death signal", re.IGNORECASE)
_LEFT = {-signal.SIGTERM, 128 + signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGINT}

# torch's prefix for tracebacks, such as [rank1]:
_RANK_MARK = re.compile(r"^\[rank\d+\]: ?")
_EXCEPTION = re.compile(r"(\w+\.)*[A-Za-z]\w*(Error|Exception|Interrupt|Exit|Failure|Iteration)(:|$)")
# The frame around the lines of an exception group.
_GROUPED = re.compile(r"^\s*[|+][\s|+-]*")


@dataclass(frozen=True)
class Ended:
    """How the process ended.  code: its exit code, or minus the signal it died of.

    asked: the signal that asked it to stop, or 0.  silent_s: how long it had printed nothing when it was stopped for
    that, or 0.  was_forced: it did not stop when asked, and was killed.
    """

    code: int
    asked: int = 0
    silent_s: float = 0.0
    was_forced: bool = False


@dataclass(frozen=True)
class End:
    """How this rank ends.  follows: only because another rank or node was lost."""

    code: int
    sentence: str = ""
    follows: bool = False


def end_of(ended: Ended, name: str, lines: Sequence[Line], *, is_alone: bool = False) -> End:
    """What the end of the script `name` means.  lines: the last ones it printed; is_alone: there is no other rank."""
    if ended.silent_s:
        return End(
            Exit.MACHINE,
            f"{name} printed nothing for {ended.silent_s:,.0f} s and was stopped; if that is expected, give a longer "
            "--max-silence-s, or 0 for no limit.",
        )
    if ended.asked and ended.code not in (Exit.DONE, Exit.INTERRUPTED):
        return _left(ended, name, lines)
    if ended.code == Exit.DONE:
        return End(Exit.DONE)
    if ended.code == Exit.INTERRUPTED:
        return End(Exit.INTERRUPTED, f"{name} was interrupted and asked to be restarted.")
    return _failed(ended.code, name, lines, is_alone=is_alone)


def _left(ended: Ended, name: str, lines: Sequence[Line]) -> End:
    """The end of a script that was asked to stop, and neither finished nor asked to be restarted."""
    by_user = ended.asked == signal.SIGINT
    if ended.was_forced and not by_user:
        return End(
            Exit.MACHINE,
            f"{name} was asked to leave, did not within {STOP_WITHIN_S} s and was killed; what it would have saved is "
            "lost. Start again to go on from what it saved before.",
        )
    said = "\n".join(line.text for line in lines)
    if ended.was_forced or ended.code in _LEFT or _ASKED.search(said) or _lost_connection(lines, is_alone=False):
        if by_user:
            return End(STOPPED, "stopped by Ctrl-C")
        return End(Exit.INTERRUPTED, f"{name} was asked to leave, and left; start again to go on.")
    return _failed(ended.code, name, lines)


def _lost_connection(lines: Sequence[Line], *, is_alone: bool) -> bool:
    """Whether the lines show that another rank was lost or could not be reached."""
    patterns = [_PORT_IS_TAKEN] if is_alone else [_PORT_IS_TAKEN, _LOST]
    return any(pattern.search(line.text) for line in lines for pattern in patterns)


def _failed(code: int, name: str, lines: Sequence[Line], *, is_alone: bool = False) -> End:
    why = reason(lines, raised=code in (Exit.BUG, -signal.SIGABRT))
    if _lost_connection(lines, is_alone=is_alone):
        what = "found a port taken" if is_alone else "lost the connection to another rank"
        return End(Exit.MACHINE, f"{name} {what}: {why}. Start again to go on.", follows=True)
    if code < 0:
        return _killed(name, _signal(-code))
    for line in lines:
        if killed := _LOST_A_PROCESS.search(line.text):
            return _killed(f"a process of {name}", killed[1])
    return End(code, f"{name} ended with exit code {code}{f': {why}' if why else ''}")


def _killed(who: str, by: str) -> End:
    hint = "; the usual reason is too little memory" if by == "SIGKILL" else ""
    return End(Exit.MACHINE, f"{who} was killed by {by}{hint}. Start again to go on.")


def reason(lines: Sequence[Line], *, raised: bool) -> str:
    """The line on standard error that gives the reason; empty if there is none.

    raised: an exception ended the script, so prefer its line to anything printed after it.
    """
    texts = [_GROUPED.sub("", _RANK_MARK.sub("", line.text)) for line in lines if line.stream == ERR]
    texts = [text for text in texts if text.strip()]
    exceptions = [text for text in texts if _EXCEPTION.match(text)] if raised else []
    return one_line((exceptions or texts or [""])[-1], _LONGEST_REASON)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True)
class OutcomeFile:
    """Where this attempt's outcome is written.  began: when this process was started, by time.time().

    run: see run_folder.Owner.
    """

    folder: Path
    job: str
    began: float
    is_head: bool
    run: str = ""

    def open(self) -> None:
        """Remove files of an earlier attempt.  Raises OSError if the folder cannot be made."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.is_head:
            return
        for name in (PACE,) if self._is_of_this_attempt() else (PACE, OUTCOME):
            with suppress(OSError):
                (self.folder / name).unlink(missing_ok=True)

    def has_failed(self) -> bool:
        """Whether another rank of this attempt has recorded that it failed."""
        found = outcome.read(self.folder) if self._is_of_this_attempt() else None
        return found is not None and found.state == "failed"

    def write(self, code: int, sentence: str, *, follows: bool = False) -> None:
        """Record how this rank ended; the first failure of any rank is kept.  follows: see End."""
        is_own_failure = state_of(code) == "failed" and not follows
        if not (self.is_head or is_own_failure) or self.has_failed():
            return
        if not self.is_head and another(self.folder, self.run):  # another run owns the folder
            return
        now, ended = time.time(), datetime.now(UTC).isoformat(timespec="seconds")
        # The script's message may contain a token, and more people read this file than its output.
        reason = "" if code == Exit.DONE else without_secrets(sentence)
        with suppress(OSError):
            Outcome(state_of(code), int(code), reason, round(now - self.began, 3), job=self.job, ended=ended).write(
                self.folder
            )

    def _is_of_this_attempt(self) -> bool:
        with suppress(OSError):
            return (self.folder / OUTCOME).stat().st_mtime >= self.began
        return False


def results_in(folder: Path) -> dict[str, int]:
    """Modification times (ns) of the script's files in the run folder; 0 for logs, which a launcher may write."""
    try:
        found = [entry for entry in folder.iterdir() if entry.name not in (OUTCOME, METRICS, PACE, IN_USE)]
        return {entry.name: 0 if entry.suffix == ".log" else entry.lstat().st_mtime_ns for entry in found}
    except OSError:
        return {}


def process_start() -> float:
    """When this process was started, by time.time(); without /proc, about now.

    Ranks start one after the other, rank 0 first, and Python's start-up takes longer than that: so anything a rank
    of this attempt writes is newer than the start of rank 0.
    """
    try:
        ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        return time.time()
    return time.time() - age
