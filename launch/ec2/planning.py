"""Looks everything up and plans: the first step of a launch, and of the replacement of lost nodes."""

from dataclasses import replace
from functools import partial

from launch.core.job import Job
from launch.core.lookup import earlier_jobs, is_sent
from launch.core.names import bucket_of, default_job_name
from launch.core.plan import Plan
from launch.core.pricelist import cache_of
from launch.ec2 import checks, planner
from launch.ec2.describe import times
from launch.ec2.gathering import look_up
from launch.ec2.options import Ec2Options
from launch.ec2.planner import Launch
from launch.ec2.regions import Place, Plans
from launch.ec2.runtime import Runtime


def plan_job(
    job: Job[Ec2Options], runtime: Runtime, region: str | None = None, *, is_first: bool = True
) -> Plan[Launch]:
    """The plan of `job`, which gets a name if it has none, in one region, by default its first.

    is_first: not for nodes that replace lost ones, which are not quoted.  Raises SettingsError before any call to AWS.
    """
    return _plan_in(region or next(iter(job.where.region), None), _named(job, runtime), runtime, is_first=is_first).plan


def plan_everywhere(job: Job[Ec2Options], runtime: Runtime) -> Plans:
    """The same in each of its regions."""
    named, regions = _named(job, runtime), dict.fromkeys(job.where.region or (None,))
    places = tuple(_plan_in(region, named, runtime) for region in regions)
    return Plans(places, is_new=job.where.job_name is None)


def _named(job: Job[Ec2Options], runtime: Runtime) -> Job[Ec2Options]:
    now = runtime.clock.utc().astimezone()
    name = job.where.job_name or default_job_name(job.train.label, now)
    return Job(job.train, job.where.model_copy(update={"job_name": name}))


def _plan_in(region: str | None, job: Job[Ec2Options], runtime: Runtime, *, is_first: bool = True) -> Place:
    resolved, now, name = checks.resolve(job), runtime.clock.utc(), str(job.where.job_name)
    aws, cache = runtime.make_aws(region), partial(cache_of, runtime.env)
    facts = look_up(aws, resolved, name, job.train.dataset, now, cache)
    bucket = job.where.bucket or bucket_of(str(facts.account), facts.region)
    if not facts.problems:
        facts = replace(facts, is_sent=is_sent(aws, bucket, job.train, times(job.where, facts)[0]))
    if not facts.problems and is_first:
        facts = replace(facts, earlier=earlier_jobs(aws, bucket, job.train, name))
    return Place(facts, planner.plan(job, resolved, name, facts))
