"""Jobs that ended in the last days, found in the toolkit's bucket: EC2 itself forgets a job within the hour."""

import re
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta

from launch.aws.client import Aws
from launch.aws.instances.inventory import Fleet
from launch.aws.lookup import spec_of
from launch.aws.names import Folder, bucket_of
from launch.aws.progress import get_outcome
from launch.core.clock import minute
from launch.core.errors import AwsError
from launch.core.jobs import Overview, Summary
from launch.core.terminal import table
from launch.ec2.backend import BACKEND_NAME
from launch.ec2.job_folder import jobs_in
from launch.ec2.status import View, summary_of
from trainer.errors import SettingsError

RECENT, MOST_SHOWN = timedelta(days=7), 50
MOST_READ, AT_ONCE = 300, 16  # folders
HOLDS = timedelta(hours=1)  # a job may be started again, and end, while nobody looks

# A job's folder -> when it was read, and how the job ended; None for one of another backend, or from long ago.
Ended = dict[Folder, tuple[datetime, Summary | None]]


def with_ended(aws: Aws, overview: Overview, known: Ended, now: datetime) -> Overview:
    """`overview` with the jobs that ended lately, the newest first.  known: what earlier calls found; it is updated.

    Jobs with a bucket of their own are not found.  Raises AwsError.
    """
    folders = _update(aws, {job.job for job in overview.jobs}, known, now)
    ended = _recent((known[folder][1] for folder in folders if folder in known), now)
    if not ended:
        return overview
    rows = [
        (one.job, one.status, minute(one.ended or now), "-" if one.usd is None else f"{one.usd:.2f}", one.reason)
        for one in ended
    ]
    text = f"ended in the last {RECENT.days} days:\n{table(('job', 'status', 'ended', 'USD', 'reason'), rows)}"
    return Overview(f"{overview.text}\n\n{text}", [*overview.jobs, *ended])


def _recent(jobs: Iterable[Summary | None], now: datetime) -> list[Summary]:
    """Those that ended lately, the newest first."""
    ages = [(now - job.ended, job) for job in jobs if job is not None and job.ended is not None]
    recent = sorted((pair for pair in ages if pair[0] < RECENT), key=lambda pair: pair[0])
    return [job for _, job in recent[:MOST_SHOWN]]


def _update(aws: Aws, active: Collection[str], known: Ended, now: datetime) -> list[Folder]:
    """Read what is new, and return the folders of jobs that are not active."""
    bucket = bucket_of(str(aws.call("sts", "GetCallerIdentity")["Account"]), aws.region)
    for job in active:
        known.pop(Folder(bucket, job), None)  # it was started again
    folders = [Folder(bucket, job) for job in _newest_names(set(jobs_in(aws, bucket)).difference(active))]
    unread = [folder for folder in folders if folder not in known or now - known[folder][0] > HOLDS]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda folder: _read(aws, folder, known, now), unread))
    return folders


def _newest_names(jobs: Iterable[str]) -> list[str]:
    """As many names as are read: first those that users chose, then those with the newest times in them."""
    times = {job: re.search(r"-(\d{8}-\d{6})-", job) for job in jobs}
    return sorted(times, key=lambda job: match[1] if (match := times[job]) else "~", reverse=True)[:MOST_READ]


def _read(aws: Aws, folder: Folder, known: Ended, now: datetime) -> None:
    """Note how the job ended.  Nothing is noted of one whose outcome may still come, or if S3 does not answer."""
    with suppress(AwsError):
        try:
            spec = spec_of(aws, folder, BACKEND_NAME)
        except SettingsError:  # a job of another backend
            spec = None
        view = View(aws.region, folder, Fleet(), now, spec=spec, saved=get_outcome(aws, folder) if spec else None)
        if view.outcome is not None and view.ended is not None:
            known[folder] = now, summary_of(view)
        elif view.started is None or now - view.started > RECENT:
            known[folder] = now, None
