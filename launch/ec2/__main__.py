"""`python -m launch.ec2`: the clock, the terminal and AWS, handed to what decides."""

import os
import sys
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from launch.core import cli, plan
from launch.core.cli import Verb
from launch.core.job import Job
from launch.ec2.options import Ec2Options
from launch.ec2.verbs import StatusOptions, verbs

if TYPE_CHECKING:
    from launch.core.aws import Aws
    from launch.core.clock import Clock
    from launch.ec2.start import World

ABOUT = """\
Starts EC2 nodes, trains across them, and takes everything down at the end.  Settings of the training go on the
same line.  --dry-run shows every request and the price before anything is spent.

  python -m launch.ec2 --nodes 2 --dry-run
  python -m launch.ec2 --nodes 2 --max-usd 50 --dataset imagenet --model resnet50 --epochs 16 --batch-size 256
"""

ATTACH = """\
follows a detached job again, replaces nodes that it loses, and takes it down at its end

  python -m launch.ec2 attach JOB
"""

# What most come here for; flags and --config win over it.
DEFAULTS = {"dataset": "imagenet", "model": "resnet18", "batch_size": 256, "progress": False}


def main(argv: list[str]) -> int:
    """Runs the command line and returns its exit code."""
    backend = cli.Backend(
        prog="python -m launch.ec2",
        about=ABOUT,
        options=Ec2Options,
        plan=_plan,
        show=plan.as_text,
        show_json=plan.as_json,
        perform=_perform,
        problem=lambda made: made.problems[0] if made.problems else None,
        verbs={**verbs(_aws, _clock, cli.say), "attach": Verb(ATTACH, StatusOptions, _attach)},
        defaults=DEFAULTS,
        check=_check,
        rehearsed_in=os.environ,
    )
    return cli.main(backend, argv)


# The rest is imported where it is used: --help needs none of it.


def _aws(region: str | None) -> "Aws":
    from launch.core.aws import Aws

    return Aws(region)


def _clock() -> "Clock":
    from launch.core.clock import Clock

    return Clock()


def _check(job: Job[Ec2Options]) -> None:
    from launch.ec2.checks import resolve

    resolve(job)


def _plan(job: Job[Ec2Options]) -> plan.Plan:
    """Checks before any call, then looks everything up."""
    from launch.core.names import default_job_name
    from launch.ec2 import checks, planner
    from launch.ec2.lookup import look_up

    resolved, now = checks.resolve(job), datetime.now(UTC)
    name = job.where.job_name or default_job_name(job.train.dataset, job.train.model, now.astimezone())
    job = Job(job.train, job.where.model_copy(update={"job_name": name}))
    facts = look_up(_aws(job.where.region), resolved, name, job.train.dataset, now)
    return planner.plan(job, resolved, name, facts)


def _perform(made: plan.Plan) -> int:
    from launch.ec2.start import launch

    return launch(made, _world(made))


def _attach(options: StatusOptions) -> int:
    """Plans the job again from what was written down, so that lost nodes can be replaced, and follows it."""
    from launch.ec2.spec import job_named
    from launch.ec2.start import attach

    made = _plan(job_named(_aws(options.region), options.job, options.bucket))
    if made.problems:
        raise made.problems[0]
    return attach(made, _world(made))


def _world(made: plan.Plan) -> "World":
    from launch.ec2.planner import inner
    from launch.ec2.start import World

    todo = inner(made)
    return World(_aws(todo.cluster.region), _clock(), cli.say, cli.may_detach, partial(_plan, todo.job))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
