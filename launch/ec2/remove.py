"""Removes jobs for the verbs: marks them as ended, removes their resources, saves how they ended."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.names import Folder
from launch.core.outcomes import put_outcome
from launch.core.perform import Say
from launch.core.price import usd
from launch.ec2 import stop
from launch.ec2.costs import cost_so_far
from launch.ec2.ends import find_ends
from launch.ec2.fleet import Fleet
from launch.ec2.folders import folder_of
from launch.ec2.names import BACKEND_NAME
from launch.ec2.outcome import at_time_limit, completed, of_records, stopped
from launch.ec2.view import View, view
from launch.ec2.written import spec_of
from trainer.errors import SettingsError, TrainerError
from trainer.outcome import Outcome

AT_ONCE = 256  # jobs: each takes a thread and 2 MB of clients
# A launch this young may have requested nodes that EC2 does not list yet.
YOUNG = timedelta(minutes=2)


@dataclass(frozen=True)
class Target:
    """A job to remove.  aws: in its region; fleet: its own, or that of all jobs; bucket: of its folder, if known."""

    aws: Aws
    job: str
    fleet: Fleet
    bucket: str | None = None


def remove(target: Target, clock: Clock, say: Say) -> None:
    """Removes all resources of a job and verifies it.

    Raises AwsError if something remains, and SettingsError if there is nothing and the job is another backend's.
    """
    aws, job, own = target.aws, target.job, target.fleet.of(target.job)
    folder = folder_of(aws, target.fleet, job, target.bucket)
    if own.is_empty:
        with suppress(AwsError):
            spec_of(aws, folder, BACKEND_NAME)
    cost = cost_so_far(find_ends(aws, folder, own), clock.utc())
    has_folder = stop.mark_stopped(aws, folder, own.started.get(job), clock, say)
    removed = 0 if own.is_empty else stop.stop(aws, job, clock, say, unsure=is_young(own, job, clock.utc()))
    if not removed:
        say(f"{job} has no resources in {aws.region}")
        return
    resources = "1 resource" if removed == 1 else f"{removed} resources"
    say(f"removed {resources} of {job}; none is left in {aws.region}.  The job cost about {usd(cost)}")
    if has_folder:
        _save_outcome(target, folder, cost, clock, say)


def _save_outcome(target: Target, folder: Folder, cost: float, clock: Clock, say: Say) -> None:
    """Writes outcome.json, unless this start of the job has one, or job.json is another backend's; a failure is a
    warning.
    """
    now, known = clock.utc(), None
    with suppress(SettingsError):
        known = view(target.aws, target.fleet, folder, now)
    if known is None or known.outcome is not None:
        return
    outcome = completed(_outcome(known), target.job, known.started, now, cost)
    if warning := put_outcome(target.aws, folder, outcome):
        say(f"warning: {warning}")


def _outcome(known: View) -> Outcome:
    """How a job ended that somebody stopped: its nodes may have been done, or have failed, before that."""
    if outcome := of_records(known.last_records):
        return outcome
    if known.deadline is not None and known.now >= known.deadline:
        return at_time_limit(known.job)
    return stopped("stopped on request")


def remove_all(targets: Iterable[Target], clock: Clock, say: Say) -> tuple[str, ...]:
    """Removes many of them at once, as terminating takes minutes; returns a sentence for each that failed."""
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        answers = list(pool.map(lambda target: _try_to_remove(target, clock, say), targets))
    return tuple(sentence for sentence in answers if sentence)


def _try_to_remove(target: Target, clock: Clock, say: Say) -> str:
    try:
        remove(target, clock, lambda text: say(f"{target.job}: {text}"))
    except TrainerError as error:
        return f"{target.job} in {target.aws.region}: {error}"
    return ""


def is_young(fleet: Fleet, job: str, now: datetime) -> bool:
    """Whether the job was started so recently that EC2 may not list all its nodes."""
    signs = [resource.created for resource in fleet.resources if resource.created]
    if job in fleet.started:
        signs.append(fleet.started[job])
    return bool(signs) and now - max(signs) < YOUNG
