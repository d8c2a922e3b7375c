"""What the toolkit's jobs have in an account, what of it is a leak, and what that costs.

Jobs are found by tag, also those of somebody else's launcher.  Snapshots, job folders and logs are no leaks.
"""

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta

from launch.core.aws import Aws
from launch.core.clock import duration
from launch.core.names import JOB_NAME
from launch.core.price import usd
from launch.core.tables import table
from launch.ec2.costs import node_usd, thing_usd, usd_per_hour
from launch.ec2.fleet import Fleet, find
from trainer.errors import TrainerError

# A launch makes groups and a time limit before its nodes, and brings lost nodes back: for so long that is no leak.
WITHOUT_NODES = timedelta(minutes=15)


@dataclass(frozen=True)
class Finding:
    """A job that has something.  why: words for the table."""

    region: str
    job: str
    is_leak: bool
    why: str
    fleet: Fleet

    @property
    def usd_per_hour(self) -> float:
        return usd_per_hour(self.fleet)


def judge(fleet: Fleet, region: str, now: datetime) -> tuple[Finding, ...]:
    """What `fleet`, of all jobs, has.  Pure."""
    jobs = {node.job for node in fleet.ending} | {thing.job for thing in fleet.things}
    return tuple(Finding(region, job, *_why(fleet.of(job), job, now), fleet.of(job)) for job in sorted(jobs))


def _why(fleet: Fleet, job: str, now: datetime) -> tuple[bool, str]:
    """Whether what the job has is a leak, and why, or why not."""
    if not has_proper_name(job):
        return True, "a tag that is no job's name, so remove it by hand"
    deadline = fleet.deadlines.get(job)
    if deadline is not None and now > deadline:
        return True, "past its time limit"
    if fleet.living:
        return (True, "without a time limit") if deadline is None else (False, "within its time limit")
    if fleet.ending:
        return False, "its nodes are shutting down"
    signs = [node.ended_at or node.launched_at for node in fleet.nodes]
    signs += [thing.created for thing in fleet.things if thing.created]
    signs += [fleet.started[job]] if job in fleet.started else []
    if signs and now - max(signs) < WITHOUT_NODES:
        return False, "between nodes"
    return True, "no nodes left"


def deletable(findings: Iterable[Finding], *, running: bool) -> tuple[Finding, ...]:
    """What --delete removes."""
    return tuple(found for found in findings if (found.is_leak or running) and has_proper_name(found.job))


def has_proper_name(job: str) -> bool:
    """Whether the toolkit may have made it.  To ask EC2 for the tag * would be to ask for every job."""
    return re.fullmatch(JOB_NAME, job) is not None


def as_text(findings: Sequence[Finding], now: datetime) -> str:
    """A row per thing that is there, and what all of them cost."""
    columns = ("kind", "id", "job", "region", "age", "USD/hour", "why")
    rows = [row for finding in findings for row in _rows(finding, now)]
    total = usd(sum(finding.usd_per_hour for finding in findings))
    leaking = usd(sum(finding.usd_per_hour for finding in findings if finding.is_leak))
    return "\n".join([table(columns, rows), "", f"{total} per hour, of which leaks {leaking}"])


def _rows(finding: Finding, now: datetime) -> Iterable[tuple[str, ...]]:
    fleet, started = finding.fleet, finding.fleet.started.get(finding.job)
    nodes = [("node", node.id, node.launched_at, node_usd(node)) for node in fleet.ending]
    things = [(thing.kind, thing.id, thing.created or started, thing_usd(thing)) for thing in fleet.things]
    for kind, name, since, price in (*nodes, *things):
        age = duration(now - since) if since else "-"
        yield (kind, name, finding.job, finding.region, age, f"{price:.3f}", finding.why)


def regions_of(aws: Aws) -> list[str]:
    """All regions that the account has switched on."""
    return sorted(region["RegionName"] for region in aws.call("ec2", "DescribeRegions")["Regions"])


def look_everywhere(places: Sequence[Aws], now: datetime) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """What is in all `places`, one per region, asked at once; and a sentence for each that could not be asked."""
    with ThreadPoolExecutor(max_workers=max(1, len(places))) as pool:
        answers = list(pool.map(lambda aws: _look(aws, now), places))
    found = tuple(finding for findings, _ in answers for finding in findings)
    return found, tuple(sentence for _, sentence in answers if sentence)


def _look(aws: Aws, now: datetime) -> tuple[tuple[Finding, ...], str]:
    try:
        return judge(find(aws), aws.region, now), ""
    except TrainerError as error:
        return (), f"{aws.region} could not be asked: {error}"
