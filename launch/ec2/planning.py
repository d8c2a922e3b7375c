"""Looks everything up and plans: the first step of a launch, and of the replacement of lost nodes."""

from launch.core.job import Job
from launch.core.names import default_job_name
from launch.core.plan import Plan
from launch.ec2 import checks, planner
from launch.ec2.lookup import look_up
from launch.ec2.options import Ec2Options
from launch.ec2.planner import Launch
from launch.ec2.runtime import Runtime


def plan_job(job: Job[Ec2Options], runtime: Runtime) -> Plan[Launch]:
    """The plan of `job`, which gets a name if it has none.  Raises SettingsError before any call to AWS."""
    resolved, now = checks.resolve(job), runtime.clock.utc()
    name = job.where.job_name or default_job_name(job.train.dataset, job.train.model, now.astimezone())
    named = Job(job.train, job.where.model_copy(update={"job_name": name}))
    facts = look_up(runtime.make_aws(job.where.region), resolved, name, job.train.dataset, now)
    return planner.plan(named, resolved, name, facts)
