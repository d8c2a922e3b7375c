"""Verbs for jobs that a launcher in a queue leads."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from launch.aws.batch import Queued
from launch.aws.client import Aws
from launch.aws.instances.inventory import Fleet
from launch.aws.logs import LogTail, follow
from launch.aws.lookup import spec_of
from launch.aws.names import Folder
from launch.aws.progress import get_outcome
from launch.aws.retry import retrying
from launch.core.errors import AwsError, Ended
from launch.core.jobs import Overview, State, Summary
from launch.core.terminal import table
from launch.ec2.backend import BACKEND_NAME, Runtime, command
from launch.ec2.job_folder import fetch_results_at_end
from launch.ec2.queue import find_queued, is_of, log_of, read_queued
from launch.ec2.watch import streams_of
from trainer.contract import Exit
from trainer.outcome import Outcome


def is_led(aws: Aws, folder: Folder) -> bool:
    """Whether a launcher in a queue waits to lead the job, or leads it.  Raises AwsError."""
    found = find_queued(aws, folder.job) if read_queued(aws, folder) is not None else None
    return found is not None and not found.is_over


def has_ended(aws: Aws, folder: Folder) -> bool:
    """Whether the start that went into a queue has ended.  Raises AwsError."""
    content, spec = read_queued(aws, folder) or {}, spec_of(aws, folder, BACKEND_NAME) or {}
    return "ended" in content or ("ended" in spec and is_of(spec, content))


def follow_queued(aws: Aws, folder: Folder, runtime: Runtime, *, fetch: bool) -> None:
    """Show what the job logs until it has ended, then fetch its results; its launcher in the queue does the rest.

    Raises Ended if it was not done.
    """
    job, said = folder.job, list[str]()

    def goes_on() -> bool:
        found = retrying(partial(find_queued, aws, job), runtime.clock, runtime.say)
        if found is not None and found.in_words not in said[-1:]:
            said.append(found.in_words)
            runtime.say(f"{job} {found.in_words}")
        return found is not None and not found.is_over

    follow(LogTail(aws, streams_of(job), several=True), goes_on, runtime.clock, lambda line: runtime.say(str(line)))
    outcome = retrying(partial(_outcome, aws, folder), runtime.clock, runtime.say)
    if outcome is None:
        raise Ended(_why_without(aws, job), Exit.AWS)
    if outcome.exit_code != Exit.DONE:
        raise Ended(outcome.reason, outcome.exit_code, outcome)
    if fetch:
        fetch_results_at_end(aws, folder, runtime.results, runtime.say)


def _outcome(aws: Aws, folder: Folder) -> Outcome | None:
    """How the start that went into the queue ended; None if it has not."""
    return get_outcome(aws, folder) if has_ended(aws, folder) else None


def _why_without(aws: Aws, job: str) -> str:
    """Why a job left the queue without an outcome, with the end of its launcher's log."""
    found = find_queued(aws, job)
    if found is None:
        return f"{job} is in no queue any more, and has no outcome; see {command('status', job, aws.region)}"
    lines = ""
    with suppress(AwsError):  # Batch's reason may say it, too
        lines = "".join(f"\n  {line}" for line in [*log_of(aws, found)][-10:])
    return f"{job} left queue {found.queue} without an outcome: {found.reason or found.status}{lines}"


def with_queue(state: State, found: Queued | None, fleet: Fleet) -> State:
    """The status of a job that went into a queue.  found: its launcher there, if Batch still has it; fleet: its own."""
    if found is None:
        return state
    reason = f": {found.reason}" if found.reason else ""
    facts = (("queue", f"{found.queue} ({found.status}{reason})"), *state.facts)
    if state.summary.nodes or found.is_over:
        return replace(state, facts=facts)
    if _is_ending(found, fleet):
        return replace(state, facts=facts, summary=replace(state.summary, status="stopping", exit_code=None))
    summary = replace(state.summary, status="waiting", reason="", exit_code=None, ended=None)
    job, region = summary.job, str(summary.region)
    commands = (command("attach", job, region), command("stop", job, region))
    return State(replace(summary, next=commands), f"job {job} in {region} {found.in_words}", facts)


def _is_ending(found: Queued, fleet: Fleet) -> bool:
    """Whether its launcher runs and its machines are gone, which EC2 lists for an hour.  fleet: its own."""
    return found.status == "RUNNING" and bool(fleet.nodes) and not fleet.living


def with_waiting(overview: Overview, queued: Sequence[Queued], region: str, fleet: Fleet) -> Overview:
    """All jobs, with those of queues that have no machines: they wait, or are about to end.  fleet: of all jobs."""
    shown = {summary.job for summary in overview.jobs}
    waiting = [one for one in queued if one.name not in shown]
    if not waiting:
        return overview
    rows = [(one.name, one.queue, one.status, f"{one.place} of {one.in_line}" if one.place else "-") for one in waiting]
    text = table(("job", "queue", "status", "in line"), rows)
    jobs = [
        Summary(
            one.name,
            "stopping" if _is_ending(one, fleet.of(one.name)) else "waiting",
            region,
            usd_per_hour=0.0,
            usd=0.0,
        )
        for one in waiting
    ]
    return Overview(f"{overview.text}\n\n{text}" if overview.jobs else text, [*overview.jobs, *jobs])
