"""Removes a job's resources by their tags, verifies that none is left, and saves the outcome.  Idempotent."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from launch.aws.client import Aws
from launch.aws.instances import removal
from launch.aws.instances.inventory import Fleet, find
from launch.aws.lookup import spec_of, spec_version
from launch.aws.names import Folder
from launch.aws.progress import put_outcome
from launch.aws.retry import is_busy, retrying
from launch.core.clock import Clock, minute
from launch.core.errors import AwsError
from launch.core.plan import CONFLICT, TAKEN
from launch.core.price import usd
from launch.core.terminal import Say
from launch.ec2 import queue
from launch.ec2.backend import BACKEND_NAME, command
from launch.ec2.costs import cost_so_far, usd_per_hour
from launch.ec2.facts import WarmNodes
from launch.ec2.job_folder import Record, folder_of, put_marker, start_of
from launch.ec2.records import at_time_limit, completed, of_records, stopped
from launch.ec2.requests import put_version
from launch.ec2.status import View, view
from launch.ec2.watch import find_ends
from trainer.errors import SettingsError, TrainerError
from trainer.outcome import Outcome


def stop(aws: Aws, job: str, clock: Clock, say: Say, *, unsure: bool = False) -> int:
    """Remove every resource of `job`; see launch.aws.instances.removal."""
    return removal.remove(aws, job, clock, say, command("stop", job, aws.region), unsure=unsure)


def mark_ended(aws: Aws, folder: Folder, clock: Clock, say: Say) -> Record | None:
    """Record in job.json that this start has ended; return job.json: None without one, empty if it cannot be read.

    Followers then stop, and the next start gets a new time limit.  Call it before terminating nodes, which a follower
    would otherwise replace.
    """
    try:
        # A launcher that waits for capacity sees the stop only there, and would start nodes later.
        return retrying(partial(_mark, aws, folder, int(clock.now())), clock, say, _is_transient)
    except (AwsError, SettingsError) as error:
        say(f"warning: job.json still says that the job is running: {error}")
    return {}


def _is_transient(error: TrainerError) -> bool:
    """Whether AWS was busy, or another command wrote job.json between the read and the write."""
    return is_busy(error) or (isinstance(error, AwsError) and error.aws_code in (TAKEN, CONFLICT))


def _mark(aws: Aws, folder: Folder, now: int) -> Record | None:
    spec, etag = spec_version(aws, folder, BACKEND_NAME)
    if spec is not None and "ended" not in spec:
        aws.call("s3", "PutObject", put_version(folder, {"ended": now, **spec}, etag, "save the end").params)
    return spec


def mark_stopped(aws: Aws, folder: Folder, started: datetime | None, clock: Clock, say: Say) -> bool:
    """mark_ended() for a stop, with the marker for a launcher that still runs; return whether the job has a folder.

    started: from the tags, in case job.json cannot be read.
    """
    spec = mark_ended(aws, folder, clock, say)
    started = start_of(spec or {}) or started
    if spec is not None and started is not None:
        try:
            retrying(partial(put_marker, aws, folder, started), clock, say, is_busy)
        except AwsError as error:
            say(f"warning: a launcher of the job that still runs may not see the stop: {error}")
    return spec is not None


def leave_warm(aws: Aws, warm: WarmNodes, started: datetime, outcome: Outcome, clock: Clock, say: Say) -> Outcome:
    """End the job and save its outcome, but leave its nodes for a next job; return the outcome with time and cost."""
    folder, now = warm.folder, clock.utc()
    mark_ended(aws, folder, clock, say)
    outcome = completed(outcome, warm.job, started, now, cost_so_far(warm.fleet, now))
    put_outcome(aws, folder, outcome, say)
    say(
        f"the job cost about {usd(outcome.usd or 0.0)}.  Its {len(warm.fleet.living)} nodes stay warm until "
        f"{minute(warm.until)}, for {usd(usd_per_hour(warm.fleet))} per hour: a job with the same machines "
        f"starts on them without booting.  To end them now:\n  {command('stop', warm.job, aws.region)}"
    )
    return outcome


AT_ONCE = 256  # jobs: each takes a thread and 2 MB of clients


@dataclass(frozen=True)
class Target:
    """A job to remove."""

    aws: Aws  # in its region
    job: str
    fleet: Fleet  # its own, or of all jobs
    bucket: str | None = None  # of its folder, if known


def remove(target: Target, clock: Clock, say: Say) -> int:
    """Remove all resources of a job and verify it; return how many there were.

    Raises AwsError if a resource remains, and SettingsError if none exists and the job belongs to another backend.
    """
    aws, job, own = target.aws, target.job, target.fleet.of(target.job)
    folder = folder_of(aws, target.fleet, job, target.bucket)
    if own.is_empty:
        with suppress(AwsError):
            spec_of(aws, folder, BACKEND_NAME)
    cost = cost_so_far(find_ends(aws, folder, own), clock.utc())
    has_folder = mark_stopped(aws, folder, own.started.get(job), clock, say)
    removed = 0 if own.is_empty else stop(aws, job, clock, say, unsure=removal.is_young(own, job, clock.utc()))
    if not removed:
        say(f"{job} has no resources in {aws.region}")
        return 0
    resources = "1 resource" if removed == 1 else f"{removed} resources"
    say(f"removed {resources} of {job}; none is left in {aws.region}.  The job cost about {usd(cost)}")
    if has_folder:
        _save_outcome(target, folder, cost, clock, say)
    return removed


def _save_outcome(target: Target, folder: Folder, cost: float, clock: Clock, say: Say) -> None:
    """Write outcome.json, unless this start has one or job.json belongs to another backend.  A failure is a warning."""
    now, known = clock.utc(), None
    with suppress(SettingsError):
        known = view(target.aws, target.fleet, folder, now)
    if known is None or known.outcome is not None:
        return
    outcome = completed(outcome_by(known), target.job, known.started, now, cost)
    put_outcome(target.aws, folder, outcome, say)


def outcome_by(known: View) -> Outcome:
    """The outcome of a stopped job: its nodes may have finished or failed before."""
    if outcome := of_records(known.last_records):
        return outcome
    if known.deadline is not None and known.now >= known.deadline:
        return at_time_limit(known.job)
    return stopped("stopped on request")


def stop_job(target: Target, clock: Clock, say: Say) -> int:
    """remove(), once the job's launcher in a queue, if it has one, has ended: it might start nodes meanwhile.

    Raises AwsError, after the removal, if that launcher may still run.
    """
    folder = folder_of(target.aws, target.fleet, target.job, target.bucket)
    was_led, problem = False, None
    try:
        was_led = queue.end(target.aws, folder, clock, say)
        target = replace(target, fleet=find(target.aws)) if was_led else target
    except TrainerError as error:  # which must not keep the nodes running
        say(f"warning: a launcher in a queue may still lead {target.job}: {error}")
        problem = error
    removed = remove(target, clock, say)
    if was_led and not removed:
        _save_end_in_line(target.aws, folder, clock, say)
    if isinstance(problem, AwsError) and problem.operation != "GetObject":  # most jobs have none
        raise problem
    return removed


def _save_end_in_line(aws: Aws, folder: Folder, clock: Clock, say: Say) -> None:
    """Write the outcome of a job that was stopped while it waited in a queue, over that of an earlier start."""
    content = queue.read_queued(aws, folder) or {}
    if not queue.is_of(spec_of(aws, folder, BACKEND_NAME), content):
        outcome = completed(stopped("stopped on request"), folder.job, None, clock.utc(), None)
        put_outcome(aws, folder, outcome, say)


def remove_all(targets: Iterable[Target], clock: Clock, say: Say) -> tuple[str, ...]:
    """Remove many jobs concurrently, as terminating takes minutes; return a sentence for each failure."""
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        answers = list(pool.map(lambda target: _try_to_remove(target, clock, say), targets))
    return tuple(sentence for sentence in answers if sentence)


def _try_to_remove(target: Target, clock: Clock, say: Say) -> str:
    try:
        stop_job(target, clock, lambda text: say(f"{target.job}: {text}"))
    except TrainerError as error:
        return f"{target.job} in {target.aws.region}: {error}"
    return ""
