"""How a job that left the queue ended.  Reads only."""

from dataclasses import replace
from pathlib import Path

from launch.core.errors import Ended
from launch.core.terminal import Say
from launch.slurm.folder import JobFolder
from launch.slurm.lookup import Slurm
from launch.slurm.names import command
from trainer import outcome
from trainer.contract import STOPPED, Exit
from trainer.outcome import Outcome, state_of

# Slurm's state of a job that could not say itself how it ended -> exit code and sentence.
STATES = {
    "TIMEOUT": (Exit.INTERRUPTED, "its time limit ended it before it had saved; raise --save-before-s"),
    "CANCELLED": (STOPPED, "it was cancelled"),
    "PREEMPTED": (Exit.INTERRUPTED, "it was preempted"),
    "NODE_FAIL": (Exit.MACHINE, "one of its nodes failed"),
    "BOOT_FAIL": (Exit.MACHINE, "one of its nodes did not boot"),
    "OUT_OF_MEMORY": (Exit.TRAINING, "it ran out of memory; give more --mem"),
    "DEADLINE": (Exit.INTERRUPTED, "its deadline passed"),
}


def outcome_of(name: str, folder: JobFolder, slurm: Slurm) -> Outcome:
    """By the outcome.json of its last start, by the exit code that the job noted, or else by Slurm's state."""
    if folder.last_start is None:
        return by_slurm(slurm.last_state(folder.ids[-1]) if folder.ids else "", name)
    code = int(folder.last_start["code"])
    reason = f"it ended with exit code {code}; see {command('logs', name)}" if code else ""
    written = outcome.read(folder.path) or Outcome(state_of(code), code, reason)
    return replace(written, job=name)


def by_slurm(state: str, name: str) -> Outcome:
    """The outcome of a job that is known by Slurm's state only; empty: Slurm has forgotten it."""
    word = state.partition("+")[0]
    code, sentence = STATES.get(word, (Exit.MACHINE, "it left the queue without noting why"))
    reason = f"{sentence} ({word or 'forgotten by Slurm'}); see {command('logs', name)}."
    if code != Exit.TRAINING:
        reason += f" Submit it with the same command and --job-name {name} to resume."
    return Outcome(state_of(code), code, reason, job=name)


def in_words(ended: Outcome, folder: Path) -> str:
    """The outcome in a sentence, and where the results are."""
    return ended.reason if ended.exit_code != Exit.DONE else f"done; results: {folder}"


def conclude(ended: Outcome, folder: Path, say: Say) -> Outcome:
    """Says that the job is done.  Raises Ended, with the job's exit code, for one that failed or was stopped."""
    if ended.exit_code != Exit.DONE:
        raise Ended(ended.reason, ended.exit_code, ended)
    say(f"job {ended.job}: {in_words(ended, folder)}")
    return ended
