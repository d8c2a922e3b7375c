"""Removes jobs for the verbs: takes them down, says what they cost, marks them as ended."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta

from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.perform import Say
from launch.core.price import usd
from launch.ec2 import stop
from launch.ec2.costs import cost_so_far
from launch.ec2.fleet import Fleet
from launch.ec2.folders import folder_of
from trainer.errors import TrainerError

# A launch this young may have asked for nodes that EC2 does not list yet.
YOUNG = timedelta(minutes=2)


@dataclass(frozen=True)
class Target:
    """A job to remove.  aws: its region; fleet: its own, or that of all jobs there; bucket: of its folder, if known."""

    aws: Aws
    job: str
    fleet: Fleet
    bucket: str | None = None


def remove(target: Target, clock: Clock, say: Say) -> None:
    """Removes all of a job and makes sure of it.  Raises AwsError if something stays."""
    aws, job, own = target.aws, target.job, target.fleet.of(target.job)
    cost = cost_so_far(own, clock.utc())
    stop.mark_ended(aws, folder_of(aws, target.fleet, job, target.bucket), clock, say)
    removed = 0 if own.is_empty else stop.stop(aws, job, clock, say, unsure=is_young(own, job, clock.utc()))
    if removed:
        things = "1 resource" if removed == 1 else f"{removed} resources"
        say(f"{things} of {job} removed, and none is left in {aws.region}; it cost about {usd(cost)}")
    else:
        say(f"nothing of {job} is left in {aws.region}")


def remove_all(targets: Sequence[Target], clock: Clock, say: Say) -> tuple[str, ...]:
    """Removes all of them at once, as ending a node takes minutes; returns a sentence for each that stayed."""
    with ThreadPoolExecutor(max_workers=max(1, len(targets))) as pool:
        answers = list(pool.map(lambda target: _try_to_remove(target, clock, say), targets))
    return tuple(sentence for sentence in answers if sentence)


def _try_to_remove(target: Target, clock: Clock, say: Say) -> str:
    try:
        remove(target, clock, lambda text: say(f"{target.job}: {text}"))
    except TrainerError as error:
        return f"{target.job} in {target.aws.region}: {error}"
    return ""


def is_young(fleet: Fleet, job: str, now: datetime) -> bool:
    """Whether the job was started so recently that EC2 may not show all its nodes."""
    signs = [thing.created for thing in fleet.things if thing.created]
    signs += [fleet.started[job]] if job in fleet.started else []
    return bool(signs) and now - max(signs) < YOUNG
