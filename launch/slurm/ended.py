"""How a job of Slurm's ended, in a sentence and an exit code: by its own word, or by Slurm's.  Reads only."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.slurm.lookup import Folder
from launch.slurm.names import LOG, command
from trainer.contract import Exit

# Slurm's state of a job that could not say itself how it ended.
STATES = {
    "TIMEOUT": (Exit.INTERRUPTED, "its time limit ended it before it had saved; raise --save-before-s"),
    "CANCELLED": (130, "it was cancelled"),
    "PREEMPTED": (Exit.INTERRUPTED, "it was preempted"),
    "NODE_FAIL": (Exit.MACHINE, "one of its nodes failed"),
    "BOOT_FAIL": (Exit.MACHINE, "one of its nodes did not boot"),
    "OUT_OF_MEMORY": (Exit.TRAINING, "it ran out of memory; give more --mem"),
    "DEADLINE": (Exit.INTERRUPTED, "its deadline passed"),
}
# How much of a log's end is searched for the sentence that the training ended with.
TAIL_BYTES = 65_536


@dataclass(frozen=True)
class Over:
    """How a job ended."""

    code: int
    sentence: str


def by_itself(start: Mapping[str, Any], folder: Folder, name: str) -> Over:
    """What the job's own last line says."""
    code, then = int(start["code"]), start["then"]
    if then == "done":
        return Over(Exit.DONE, f"it is done; results: {folder.path}")
    if then == "stopped":
        return Over(130, "it was stopped, and its ranks saved" if code == Exit.INTERRUPTED else "it was stopped")
    if then == "spent":
        return Over(
            code, f"it ended with {code} after {start['restarts']} restarts; submit with the same command to go on"
        )
    reason = said(folder.path / LOG, int(start.get("log", 0)))
    return Over(code, reason or f"it failed with exit code {code}; see {command('logs', name)}")


def by_slurm(state: str, name: str) -> Over:
    """What Slurm says of a job that did not."""
    word = state.partition("+")[0]
    code, sentence = STATES.get(word, (Exit.MACHINE, "it left the queue without a word"))
    again = " Submit with the same command to go on." if code != Exit.TRAINING else ""
    return Over(code, f"{sentence} ({word or 'Slurm forgot it'}); see {command('logs', name)}.{again}")


def said(log: Path, since: int = 0) -> str | None:
    """The last error that the training told, without its first word.  since: where its own start begins in the log."""
    if not log.exists():
        return None
    with log.open("rb") as opened:
        opened.seek(max(0, since, log.stat().st_size - TAIL_BYTES))
        lines = opened.read().decode(errors="replace").splitlines()
    starts = [place for place, line in enumerate(lines) if line.startswith("error: ")]
    return lines[starts[-1]].removeprefix("error: ") if starts else None
