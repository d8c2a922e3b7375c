"""Puts the runs of a sweep into a queue; status, logs, stop and attach refer to each by its own name."""

from collections.abc import Sequence
from dataclasses import replace

from launch.aws.batch import submit_each
from launch.core.job import Batch, Member
from launch.sagemaker.runtime import Runtime, terminal
from launch.sagemaker.start import begin, prepare


def submit(members: Sequence[Member], batch: Batch) -> list[str]:
    """submit_each(), for SageMaker."""
    places = {member.job.where.region for member in members}
    runtimes = {place: replace(terminal(place), say=lambda _: None) for place in places}
    return submit_each(members, batch, lambda member: _submit(member, runtimes[member.job.where.region]))


def _submit(member: Member, runtime: Runtime) -> bool:
    """Whether it was submitted, and not there already.  Raises TrainerError."""
    where = member.job.where.model_copy(update={"job_name": member.name})
    plan = prepare(replace(member.job, where=where), runtime)
    if plan.problem:
        raise plan.problem
    has_ended = plan.payload.running is None and plan.payload.description.name != member.name
    if plan.payload.running is not None or (has_ended and member.is_unseen):
        return False
    begin(plan, runtime)
    return True
