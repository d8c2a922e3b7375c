"""outcome.json of a user's training: the rank that failed first writes it, and rank 0 if none did.

So a rank need not know of the others, which share at least their node's run folder.
"""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trainer import outcome
from trainer.contract import METRICS, OUTCOME, PACE, Exit
from trainer.outcome import Outcome, state_of
from trainer.process.folder_lock import IN_USE, another
from trainer.settings.hidden import without_secrets


@dataclass(frozen=True)
class Book:
    """Where this attempt's outcome is written.  began: when this process was started, by time.time().

    run: see folder_lock.Owner.
    """

    folder: Path
    job: str
    began: float
    is_head: bool
    run: str = ""

    def open(self) -> None:
        """Removes what an earlier attempt has left.  Raises OSError if the folder cannot be made."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.is_head:
            return
        for name in (PACE,) if self._is_of_this_attempt() else (PACE, OUTCOME):
            with suppress(OSError):
                (self.folder / name).unlink(missing_ok=True)

    def has_failed(self) -> bool:
        """Whether another rank of this attempt has noted that it failed."""
        found = outcome.read(self.folder) if self._is_of_this_attempt() else None
        return found is not None and found.state == "failed"

    def write(self, code: int, sentence: str, *, follows: bool = False) -> None:
        """Notes how this rank ended; of several the first failure counts.  follows: on another rank's."""
        is_own_failure = state_of(code) == "failed" and not follows
        if not (self.is_head or is_own_failure) or self.has_failed():
            return
        if not self.is_head and another(self.folder, self.run):  # whose rank 0 came first: the file is that run's
            return
        now, ended = time.time(), datetime.now(UTC).isoformat(timespec="seconds")
        # The script's own words, perhaps with a token in them: more people read this file than its output.
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
    """What lies in a run folder beside our own files, with its time; of logs, which a launcher may write, without."""
    try:
        found = [entry for entry in folder.iterdir() if entry.name not in (OUTCOME, METRICS, PACE, IN_USE)]
        return {entry.name: 0 if entry.suffix == ".log" else entry.lstat().st_mtime_ns for entry in found}
    except OSError:
        return {}


def process_start() -> float:
    """When this process was started, by time.time(); without /proc, about now.

    Ranks are started one after the other, rank 0 first, and Python takes longer than that: so whatever a rank of this
    attempt writes is later than the start of rank 0.
    """
    try:
        ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        return time.time()
    return time.time() - age
