"""How the user's jobs are, or one of them, in words.  Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from launch.core.progress import in_words
from launch.core.tables import table
from launch.slurm.ended import Over
from launch.slurm.explain import waits
from launch.slurm.listing import Queued
from launch.slurm.lookup import Folder
from launch.slurm.names import command

Record = Mapping[str, Any]


def all_as_text(jobs: Sequence[Queued]) -> str:
    """A row per job in the queue."""
    if not jobs:
        return (
            "no job of yours is in the queue.  One that is over is shown by its name: python -m launch.slurm status JOB"
        )
    columns = ("job", "id", "state", "nodes", "ran", "left", "partition", "where")
    return table(columns, [_row(job) for job in jobs])


def _row(job: Queued) -> tuple[str, ...]:
    where = waits(job.reason) if job.is_waiting else job.node_list
    return (job.name, job.id, job.state.lower(), str(job.nodes), job.ran, job.left, job.partition, where)


def as_text(
    name: str, job: Queued | None, folder: Folder, over: Over | None, record: Record | None, epochs: str
) -> str:
    """All about one job, and what to type next.  over: how it ended, if it is not in the queue; record: its newest."""
    rows = list(_facts(job, folder, record, epochs))
    width = max(len(label) for label, _ in rows)
    lines = [_headline(name, job, over), "", *(f"  {label:<{width}}  {text}" for label, text in rows)]
    return "\n".join([*lines, "", "next:", *(f"  {line}" for line in _next(name, job))])


def _headline(name: str, job: Queued | None, over: Over | None) -> str:
    if job is None:
        return f"job {name} is over: {over.sentence if over else 'how is not known'}"
    return f"job {name}: {job.state.lower()} as {job.id}"


def _facts(job: Queued | None, folder: Folder, record: Record | None, epochs: str) -> Iterator[tuple[str, str]]:
    if job and job.is_waiting:
        yield "queue", waits(job.reason)
        if job.starts_at not in ("N/A", ""):
            yield "start", f"expected at {job.starts_at}"
    if job and not job.is_waiting:
        yield "nodes", f"{job.nodes}: {job.node_list}"
        yield "time", f"ran {job.ran}, {job.left} left of this start"
    if record is not None:
        yield "training", in_words(record, epochs)
    if folder.starts:
        ends = ", ".join(f"{start['code']} ({start['then']})" for start in folder.starts[-5:])
        yield "starts", f"{len(folder.starts)} ended, with {ends}"
    yield "folder", str(folder.path)


def _next(name: str, job: Queued | None) -> Iterator[str]:
    yield command("logs", name) + (" --follow" if job else "")
    if job:
        yield command("attach", name)
        yield command("stop", name)
