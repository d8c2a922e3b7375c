"""Which jobs without nodes may still wait for capacity, as no job that waits is a leak.  Reads only."""

from datetime import datetime, timedelta

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.names import Folder
from launch.core.patience import may_pass
from launch.ec2.fleet import Fleet
from launch.ec2.leaks import judge
from launch.ec2.names import BACKEND_NAME
from launch.ec2.written import Record, spec_of
from trainer.errors import SettingsError


def waiting(aws: Aws, fleet: Fleet, now: datetime) -> frozenset[str]:
    """The jobs with --wait-for-capacity that would be leaks without it."""
    doubtful = {finding.job for finding in judge(fleet, aws.region, now) if finding.is_leak}
    return frozenset(job for job in doubtful & fleet.deadlines.keys() & fleet.started.keys() if _waits(aws, fleet, job))


def _waits(aws: Aws, fleet: Fleet, job: str) -> bool:
    """Whether its job.json leaves that open; also where AWS does not answer, as what does not cost can be left.

    Every launcher may write job.json.  So leaks.py believes it only until the time limit in the tags.
    """
    bucket = fleet.buckets.get(job)
    try:
        spec = spec_of(aws, Folder(bucket, job), BACKEND_NAME) if bucket else None
    except SettingsError:
        return False
    except AwsError as error:
        return may_pass(error)
    return spec is not None and "ended" not in spec and _may_wait(spec, fleet.deadlines[job] - fleet.started[job])


def _may_wait(spec: Record, allowed: timedelta) -> bool:
    """Whether the time limit in the tags is later than --max-hours, which begins with the nodes; see describe.times().

    That of a capacity block is the block's end, however long the job waits for its beginning.
    """
    where = spec.get("where", {})
    hours = where.get("max_hours")
    if type(hours) not in (int, float) or not 0 <= hours < float("inf"):
        return False
    return bool(where.get("capacity_block")) or allowed > timedelta(hours=min(hours, 24 * 365))
