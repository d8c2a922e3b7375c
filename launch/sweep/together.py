"""Submits the runs of a sweep together, where the backend can do that: on Slurm as one job array."""

from dataclasses import replace

from launch.core.job import Job
from launch.core.together import Member, Submit, Together
from launch.sweep.folder import job_name
from launch.sweep.planned import Planned
from launch.sweep.runner import Context
from launch.sweep.work import Work
from trainer.settings.registry import import_function

# Of no run: those have no dot in front.
NAME = ".array"
ENDED = ("done", "failed", "interrupted")


def submitted(work: Work, context: Context, at_once: int) -> tuple[Work, Context]:
    """The sweep whose runs wait in a queue by now, in the order of their starts, and whose launchers attach to them.

    As it was where runs cannot be submitted together.  Raises TrainerError.
    """
    if not work.todo or not work.todo[0].backend.together:
        return work, context
    name = job_name(context.sweep, NAME, context.identity)
    members = [_member(run, work, context) for run in work.todo]
    submit: Submit = import_function(work.todo[0].backend.together)
    names = submit(members, Together(name, context.out, at_once, context.env, context.say))
    in_order = sorted(work.todo, key=lambda run: names.index(own) if (own := context.job(run)) in names else len(names))
    return replace(work, todo=in_order), replace(context, together=name, attached=frozenset(names))


def _member(run: Planned, work: Work, context: Context) -> Member:
    before = work.before.get(run.name)
    is_unseen = before is None or before.state not in ENDED
    return Member(context.job(run), context.folder(run), Job(run.train, run.where), is_unseen)
