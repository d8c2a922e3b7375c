"""Leaks: resources of jobs that should have ended, with their price.

Covers all jobs of the account, found by tag.  Snapshots, job folders and logs are never leaks.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from types import MappingProxyType

from launch.aws.batch import Queued
from launch.aws.client import Aws
from launch.aws.instances.inventory import Fleet, find
from launch.aws.lookup import spec_of
from launch.aws.names import Folder
from launch.aws.retry import is_transient
from launch.core.clock import duration
from launch.core.errors import AwsError
from launch.core.job import JOB_NAME
from launch.core.jobs import Leak
from launch.ec2.backend import BACKEND_NAME, command
from launch.ec2.costs import node_usd, resource_usd, usd_per_hour
from launch.ec2.facts import WarmNodes
from launch.ec2.job_folder import Record
from launch.ec2.warm import warm_nodes
from trainer.errors import SettingsError, one_line

# A launch creates groups and a time limit before its nodes, and replaces lost nodes: not a leak for this long.
WITHOUT_NODES = timedelta(minutes=15)
# A warm node shuts down at the end of its time, if not at once.
WARM_GRACE = timedelta(minutes=5)


def leaks_of(
    fleet: Fleet,
    region: str,
    now: datetime,
    waiting: Collection[str] = (),
    warm: Mapping[str, datetime] = MappingProxyType({}),
) -> tuple[Leak, ...]:
    """One entry for each job of `fleet` with resources, leak or not.  Pure.

    waiting: jobs without nodes that may be waiting for capacity; see waiting().
    warm: when the nodes of ended jobs end themselves; see warm_times().
    """
    jobs = {node.job for node in fleet.present} | {resource.job for resource in fleet.resources}
    return tuple(
        _leak(fleet.of(job), job, region, now, waits=job in waiting, warm=warm.get(job)) for job in sorted(jobs)
    )


def _leak(own: Fleet, job: str, region: str, now: datetime, *, waits: bool, warm: datetime | None) -> Leak:
    is_leak, why = _verdict(own, job, now, waits=waits)
    if warm is not None and own.living and not is_leak:
        is_leak, why = now > warm + WARM_GRACE, f"warm until {warm:%H:%M} UTC"
    rows = tuple(_rows(own, job, region, why, now))
    ids, is_ours = [row[1] for row in rows], has_proper_name(job)
    return Leak(job, region, is_leak, why, usd_per_hour(own), rows, ids, is_ours, resources=own)


def _verdict(own: Fleet, job: str, now: datetime, *, waits: bool) -> tuple[bool, str]:
    """Whether the job's resources are a leak, and the reason."""
    if not has_proper_name(job):
        return True, "the tag is not a job name, so remove it by hand"
    deadline = own.deadlines.get(job)
    if deadline is not None and now > deadline:
        return True, "past its time limit"
    if own.living:
        return (True, "without a time limit") if deadline is None else (False, "within its time limit")
    if own.present:
        return False, "its nodes are shutting down"
    return _verdict_without_nodes(own, job, now, waits=waits)


def _verdict_without_nodes(own: Fleet, job: str, now: datetime, *, waits: bool) -> tuple[bool, str]:
    """The same without nodes.  A job may wait for capacity until its time limit: EC2 soon forgets its lost nodes."""
    newest = _newest_sign(own, job)
    if newest is None:
        return True, "no nodes left"
    if now - newest < WITHOUT_NODES or (_may_have_just_ended(own) and not usd_per_hour(own)):
        return False, "between nodes"
    if waits and not usd_per_hour(own):
        return False, "waits for capacity"
    return True, "no nodes left"


def _may_have_just_ended(own: Fleet) -> bool:
    """Whether a node ended at an unknown time, as reclaimed ones do: EC2 lists it for an hour at most."""
    return any(node.ended_at is None for node in own.nodes)


def _newest_sign(own: Fleet, job: str) -> datetime | None:
    """The latest time at which the job is known to have had a resource."""
    signs = [node.ended_at or node.launched_at for node in own.nodes]
    signs += [resource.created for resource in own.resources if resource.created]
    if job in own.started:
        signs.append(own.started[job])
    return max(signs, default=None)


def has_proper_name(job: str) -> bool:
    """Whether `job` is a valid job name.  A filter for the tag * would match every job."""
    return re.fullmatch(JOB_NAME, job) is not None


def _rows(fleet: Fleet, job: str, region: str, why: str, now: datetime) -> Iterable[tuple[str, ...]]:
    """A row per resource: kind, id, job, region, age, USD/hour, why."""
    started = fleet.started.get(job)
    for node in fleet.present:
        yield ("node", node.id, job, region, duration(now - node.launched_at), f"{node_usd(node):.3f}", why)
    for resource in fleet.resources:
        since = resource.created or started
        age = duration(now - since) if since else "-"
        yield (resource.kind, resource.id, job, region, age, f"{resource_usd(resource):.3f}", why)


def in_queue(queued: Queued, region: str) -> Leak:
    """A job that waits in a queue, or whose launcher there has no nodes now: it costs nothing."""
    why = queued.in_words
    row = ("job", queued.id, queued.name, region, "-", "0.000", why)
    return Leak(queued.name, region, False, why, 0.0, (row,), (queued.id,), resources=Fleet())


def warm_times(aws: Aws, fleet: Fleet) -> dict[str, datetime]:
    """When the nodes of each job that has left them warm end themselves."""
    found = {job: _warm(aws, fleet.of(job), job) for job in fleet.jobs}
    return {job: nodes.until for job, nodes in found.items() if nodes is not None}


def _warm(aws: Aws, own: Fleet, job: str) -> WarmNodes | None:
    with suppress(AwsError):  # they end by their time limit in any case
        return warm_nodes(aws, own, job)
    return None


def waiting(aws: Aws, fleet: Fleet, now: datetime) -> frozenset[str]:
    """The jobs that would be leaks but for --wait-for-capacity."""
    doubtful = {one.job for one in leaks_of(fleet, aws.region, now) if one.is_leak}
    return frozenset(job for job in doubtful & fleet.deadlines.keys() & fleet.started.keys() if _waits(aws, fleet, job))


def _waits(aws: Aws, fleet: Fleet, job: str) -> bool:
    """Whether by its job.json the job may still wait.  Also if AWS does not answer: without nodes nothing is billed.

    It counts only until the time limit in the tags.
    """
    bucket = fleet.buckets.get(job)
    try:
        spec = spec_of(aws, Folder(bucket, job), BACKEND_NAME) if bucket else None
    except SettingsError:
        return False
    except AwsError as error:
        return is_transient(error)
    return spec is not None and "ended" not in spec and _may_wait(spec, fleet.deadlines[job] - fleet.started[job])


def _may_wait(spec: Record, allowed: timedelta) -> bool:
    """Whether the tags' time limit exceeds --max-hours, which begins with the nodes; see describe.times().

    The time limit in a capacity block is its end, however long the job waits for its beginning.
    """
    where = spec.get("where", {})
    hours = where.get("max_hours")
    if type(hours) not in (int, float) or not 0 <= hours < float("inf"):
        return False
    return bool(where.get("capacity_block")) or allowed > timedelta(hours=min(hours, 24 * 365))


def active_jobs(aws: Aws, now: datetime) -> tuple[str, ...]:
    """The jobs with resources in a region, each with the command that stops it.  Raises TrainerError.

    For launch.infra, which must not delete the roles of their nodes.
    """
    found = [one.job for one in leaks_of(find(aws), aws.region, now)]
    return tuple(f"{one_line(job, 100)} in {aws.region} ({_remedy(job, aws.region)})" for job in found)


def _remedy(job: str, region: str) -> str:
    """The command that stops the job; not for an invalid name, as users paste the command."""
    return command("stop", job, region) if has_proper_name(job) else "not a job's name: remove it by hand"
