"""How long jobs without nodes may still wait for capacity, as no job that waits is a leak.  Reads only."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.names import Folder
from launch.ec2.fleet import Fleet
from launch.ec2.leaks import judge
from launch.ec2.names import BACKEND_NAME
from launch.ec2.written import Record, spec_of
from trainer.errors import SettingsError


def waits_of(aws: Aws, fleet: Fleet, now: datetime) -> Mapping[str, timedelta]:
    """--wait-for-capacity of the jobs that would be leaks without it, by job; those that do not wait are left out."""
    doubtful = {finding.job for finding in judge(fleet, aws.region, now) if finding.is_leak}
    waits = {job: _wait(aws, fleet, job) for job in doubtful & fleet.deadlines.keys() & fleet.started.keys()}
    return {job: wait for job, wait in waits.items() if wait > timedelta(0)}


def _wait(aws: Aws, fleet: Fleet, job: str) -> timedelta:
    """What the time limit in the tags allows beyond --max-hours, which begins with the nodes; see describe.times().

    Every launcher may write job.json.  So no wait is longer than the tags allow, and what costs something is a leak
    whatever that file says.
    """
    spec, nothing = _spec(aws, fleet, job), timedelta(0)
    hours = spec.get("where", {}).get("max_hours")
    if "ended" in spec or type(hours) not in (int, float) or not 0 <= hours < float("inf"):
        return nothing
    allowed = fleet.deadlines[job] - fleet.started[job]
    return max(nothing, allowed - timedelta(hours=min(hours, 24 * 365)))


def _spec(aws: Aws, fleet: Fleet, job: str) -> Record:
    bucket = fleet.buckets.get(job)
    try:
        return (spec_of(aws, Folder(bucket, job), BACKEND_NAME) if bucket else None) or {}
    except (AwsError, SettingsError):
        return {}
