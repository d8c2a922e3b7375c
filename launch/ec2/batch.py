"""Puts jobs into a queue: one, or the runs of a sweep, which status, logs, stop and attach refer to by their names."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from launch.aws.batch import submit_each
from launch.aws.client import Aws
from launch.aws.retry import is_transient, retrying
from launch.core.errors import AwsError
from launch.core.job import Batch, Member
from launch.core.perform import Answer, perform
from launch.core.plan import Request
from launch.ec2.backend import Runtime, command
from launch.ec2.queue import SUBMIT, find_queued, read_queued
from launch.ec2.regions import Plans, plan_regions


def put_into_queue(plans: Plans, runtime: Runtime) -> None:
    """Upload what the job needs, and submit its launcher, unless it is there.  Raises AwsError."""
    home = plans.places[0].plan.payload.cluster
    runtime.say(f"job {home.job}; from any terminal:")
    for verb in ("status", "logs", "attach", "stop"):
        runtime.say(f"  {command(verb, home.job, home.region)}")
    others = (place for place in plans.places[1:] if place.problem is None)
    for place in others:  # its source, as the launcher may start the job there
        sources = [step for step in place.plan.steps if isinstance(step, Request) and _is_source(step)]
        perform(sources, runtime.make_aws(place.region).call, runtime.say, runtime.clock.sleep)
    aws = runtime.make_aws(home.region)

    def call(service: str, operation: str, params: Mapping[str, Any]) -> Answer:
        return _submit(aws, params, runtime) if operation == SUBMIT else aws.call(service, operation, params)

    perform(plans.places[0].plan.steps, call, runtime.say, runtime.clock.sleep)
    found = retrying(partial(find_queued, aws, home.job), runtime.clock, runtime.say)
    if found is not None:
        runtime.say(f"{home.job} {found.in_words}")


def _is_source(step: Request) -> bool:
    return step.service == "s3" and "IfNoneMatch" in step.params


def _submit(aws: Aws, params: Mapping[str, Any], runtime: Runtime) -> Answer:
    """SubmitJob has no token, so look for the job before the request is repeated."""

    def once() -> Answer:
        found = find_queued(aws, params["jobName"])
        if found is not None and not found.is_over:
            return {"jobId": found.id}
        return aws.call("batch", SUBMIT, params)

    return retrying(once, runtime.clock, runtime.say, is_transient)


# ---- the runs of a sweep


def submit(members: Sequence[Member], batch: Batch) -> list[str]:
    """submit_each(), for EC2."""
    return submit_each(members, batch, partial(_put_member, runtime=Runtime(say=lambda _: None)))


def _put_member(member: Member, runtime: Runtime) -> bool:
    """Whether it was submitted, and not there already.  Raises TrainerError."""
    where = member.job.where.model_copy(update={"job_name": member.name})
    plans = plan_regions(replace(member.job, where=where), runtime)
    home = plans.places[0]
    has_ended = home.facts.queued is None and _was_queued(runtime.make_aws(home.region), home.plan.payload.cluster)
    if home.facts.queued is not None or (has_ended and member.is_unseen):
        return False
    if plans.problem:
        raise plans.problem
    put_into_queue(plans, runtime)
    return True


def _was_queued(aws: Aws, cluster: Any) -> bool:
    try:
        return read_queued(aws, cluster.folder) is not None
    except AwsError:
        return False
