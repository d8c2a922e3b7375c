"""The status of one or all of the user's jobs as text, and the outcome of a job that left the queue."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from launch.aws.progress import in_words as progress_in_words
from launch.core.errors import Ended
from launch.core.jobs import Overview, Phase, State, Summary, phases_of
from launch.core.metrics import values_of
from launch.core.terminal import Say, table
from launch.slurm.explain import why_it_waits
from launch.slurm.folder import JobFolder
from launch.slurm.listing import QueuedJob, seconds_of
from launch.slurm.lookup import Slurm
from launch.slurm.names import command, next_commands
from trainer import outcome
from trainer.contract import STOPPED, Exit
from trainer.outcome import Outcome, state_of

Record = Mapping[str, Any]


def all_as_text(jobs: Sequence[QueuedJob]) -> str:
    """A table with a row per job in the queue."""
    if not jobs:
        return f"you have no jobs in the queue; to see one that has ended: {command('status', 'JOB')}"
    headings = ("job", "id", "state", "nodes", "ran", "left", "partition", "where")
    return table(headings, [_row(job) for job in jobs])


def overview(jobs: Sequence[QueuedJob]) -> Overview:
    """all_as_text(), also for programs."""
    return Overview(all_as_text(jobs), [summary_of(job) for job in jobs])


def summary_of(job: QueuedJob) -> Summary:
    """A job in the queue, for programs."""
    return Summary(
        job.name,
        "waiting" if job.is_waiting else "stopping" if job.state == "COMPLETING" else "running",
        nodes=0 if job.is_waiting else job.nodes,
        folder=str(job.folder),
    )


def _row(job: QueuedJob) -> tuple[str, ...]:
    where = why_it_waits(job.reason, job.id) if job.is_waiting else job.node_list
    return (job.name, job.id, job.state.lower(), str(job.nodes), job.ran, job.left, job.partition, where)


def job_state(
    name: str,
    queued: QueuedJob | None,
    folder: JobFolder,
    ended: Outcome | None,
    record: Record | None,
    epochs: str,
    progress: str = "",
) -> State:
    """The full status of one job, with the next commands.

    ended: its outcome, if it is not in the queue; record: its newest metrics; epochs: of the whole training; progress:
    of a script, if known.
    """
    if queued:
        headline = f"job {name}: {queued.state.lower()} as {queued.id}"
    else:
        headline = f"job {name} ended: {in_words(ended, folder.path) if ended else 'the outcome is unknown'}"
    facts = tuple(_rows(queued, folder, record, epochs, progress))
    summary = summary_of(queued) if queued else Summary(name, "failed", folder=str(folder.path))
    summary = summary.ended_with(ended) if ended else summary
    metrics, commands = values_of(record) if record else None, next_commands(name, is_over=queued is None)
    return State(replace(summary, metrics=metrics, next=commands), headline, facts)


def phases(queued: QueuedJob | None, folder: JobFolder, now: datetime) -> tuple[Phase, ...]:
    """When the newest submission waited in the queue, and when it trained."""
    starts = [start for start in folder.starts if start["job"] in folder.ids[-1:]]
    moments: list[tuple[str, datetime | None]] = [("queue", folder.submitted)]
    for start in starts:
        moments += [("train", _utc(start.get("began"))), ("queue", _utc(start.get("ended")))]
    if queued is None:
        return phases_of(moments[:-1], moments[-1][1]) if starts else ()
    if not queued.is_waiting:
        with suppress(ValueError):  # Slurm prints INVALID while its clocks differ
            moments.append(("train", now - timedelta(seconds=seconds_of(queued.ran) or 0)))
    return phases_of(moments, None)


def _utc(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _rows(
    queued: QueuedJob | None, folder: JobFolder, record: Record | None, epochs: str, progress: str
) -> Iterator[tuple[str, str]]:
    if queued and queued.is_waiting:
        yield "queue", why_it_waits(queued.reason, queued.id)
        if queued.starts_at not in ("N/A", ""):
            yield "start", f"expected at {queued.starts_at}"
    if queued and not queued.is_waiting:
        yield "nodes", f"{queued.nodes}: {queued.node_list}"
        yield "time", f"ran {queued.ran}, {queued.left} left of this start"
    if record is not None:
        yield "training", progress_in_words(record, epochs)
    if progress:
        yield "progress", progress
    if folder.starts:
        ends = ", ".join(f"{start['code']} ({start['then']})" for start in folder.starts[-5:])
        yield "starts", f"{len(folder.starts)} so far, with exit code {ends}"
    yield "folder", str(folder.path)


# Slurm's state of a job that left no outcome itself -> exit code and sentence.
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
    """The job's outcome: from outcome.json of its last start, else its recorded exit code, else Slurm's state."""
    if folder.last_start is None:
        return by_slurm(slurm.last_state(folder.ids[-1]) if folder.ids else "", name)
    code = int(folder.last_start["code"])
    reason = f"it ended with exit code {code}; see {command('logs', name)}" if code else ""
    written = outcome.read(folder.path) or Outcome(state_of(code), code, reason)
    return replace(written, job=name)


def by_slurm(state: str, name: str) -> Outcome:
    """The outcome by Slurm's state alone, which is empty if Slurm has forgotten the job."""
    word = state.partition("+")[0]
    code, sentence = STATES.get(word, (Exit.MACHINE, "it left the queue without noting why"))
    reason = f"{sentence} ({word or 'forgotten by Slurm'}); see {command('logs', name)}."
    if code != Exit.TRAINING:
        reason += f" Submit it with the same command and --job-name {name} to resume."
    return Outcome(state_of(code), code, reason, job=name)


def in_words(ended: Outcome, folder: Path) -> str:
    """The outcome as a sentence, with the folder of the results."""
    return ended.reason if ended.exit_code != Exit.DONE else f"done; results: {folder}"


def conclude(ended: Outcome, folder: Path, say: Say) -> Outcome:
    """Print that the job is done.  Raises Ended, with the job's exit code, if it failed or was stopped."""
    if ended.exit_code != Exit.DONE:
        raise Ended(ended.reason, ended.exit_code, ended)
    say(f"job {ended.job}: {in_words(ended, folder)}")
    return ended
