"""Puts the runs of a sweep into a queue; status, logs, stop and attach refer to each by its own name."""

from collections.abc import Sequence
from dataclasses import replace

from launch.core.job import Batch, Member
from launch.sagemaker.runtime import Runtime, terminal
from launch.sagemaker.start import begin, prepare
from trainer.errors import TrainerError


def submit(members: Sequence[Member], batch: Batch) -> list[str]:
    """Submit the jobs that have a queue, one by one: Batch takes five a second.  Raises TrainerError.

    Returns the names of the jobs to attach to.  Jobs that wait or run, or have ended while no launcher followed them,
    are included but not submitted again.  Jobs that cannot be submitted are left out.
    """
    queued = [member for member in members if member.job.where.queue is not None]
    places = {member.job.where.region for member in queued}
    runtimes = {place: replace(terminal(place), say=lambda _: None) for place in places}
    names = list[str]()
    for number, member in enumerate(queued, 1):
        try:
            new = _submit(member, runtimes[member.job.where.region])
        except TrainerError as error:  # its own launcher meets it again, and its row has it
            batch.say(f"{number}/{len(queued)}  {member.name} is not in the queue: {error}")
            continue
        names.append(member.name)
        if new:
            batch.say(f"{number}/{len(queued)}  {member.name} is in queue {member.job.where.queue}")
    return names


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
