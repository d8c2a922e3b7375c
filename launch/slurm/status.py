"""The state of the user's jobs, or of one of them, as text.  Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from launch.aws.progress import in_words as progress_in_words
from launch.core.terminal import columns, table
from launch.slurm.ended import in_words
from launch.slurm.explain import why_it_waits
from launch.slurm.folder import JobFolder
from launch.slurm.listing import QueuedJob
from launch.slurm.names import command, next_commands
from trainer.outcome import Outcome

Record = Mapping[str, Any]


def all_as_text(jobs: Sequence[QueuedJob]) -> str:
    """A row per job in the queue."""
    if not jobs:
        return f"you have no jobs in the queue; to see one that has ended: {command('status', 'JOB')}"
    headings = ("job", "id", "state", "nodes", "ran", "left", "partition", "where")
    return table(headings, [_row(job) for job in jobs])


def _row(job: QueuedJob) -> tuple[str, ...]:
    where = why_it_waits(job.reason, job.id) if job.is_waiting else job.node_list
    return (job.name, job.id, job.state.lower(), str(job.nodes), job.ran, job.left, job.partition, where)


def as_text(
    name: str,
    queued: QueuedJob | None,
    folder: JobFolder,
    ended: Outcome | None,
    record: Record | None,
    epochs: str,
    progress: str = "",
) -> str:
    """All about one job, and the next commands.  ended: if it is not in the queue; record: its newest; epochs: of
    the whole training; progress: how far a script is, if it tells.
    """
    if queued:
        headline = f"job {name}: {queued.state.lower()} as {queued.id}"
    else:
        headline = f"job {name} ended: {in_words(ended, folder.path) if ended else 'the outcome is unknown'}"
    lines = [headline, "", *columns(list(_rows(queued, folder, record, epochs, progress)))]
    return "\n".join([*lines, "", "next:", *(f"  {line}" for line in next_commands(name, is_over=queued is None))])


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
