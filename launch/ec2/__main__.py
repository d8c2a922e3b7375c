"""`python -m launch.ec2`: the clock, the terminal and AWS, handed to what decides."""

import sys
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from launch import cli, plan
from launch.aws import Aws
from launch.ec2 import checks, planner
from launch.ec2.lookup import look_up
from launch.ec2.names import default_job_name
from launch.ec2.options import Ec2Options
from launch.job import Job

if TYPE_CHECKING:
    from launch.ec2.start import World

ABOUT = """\
Starts EC2 nodes, trains across them, and takes everything down at the end.  Settings of the training go on the
same line.  --dry-run shows every request and the price before anything is spent.

  python -m launch.ec2 --nodes 2 --dry-run
  python -m launch.ec2 --nodes 2 --max-usd 50 --dataset imagenet --model resnet50 --epochs 16 --batch-size 256
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
        defaults=DEFAULTS,
    )
    return cli.main(backend, argv)


def _plan(job: Job[Ec2Options]) -> plan.Plan:
    """Checks before any call, then looks everything up."""
    settled, now = checks.settle(job), datetime.now(UTC)
    name = job.where.job_name or default_job_name(job.train.dataset, job.train.model, now.astimezone())
    job = Job(job.train, job.where.model_copy(update={"job_name": name}))
    facts = look_up(Aws(job.where.region), settled, name, job.train.dataset, now)
    return planner.plan(job, settled, name, facts)


def _perform(made: plan.Plan) -> int:
    from launch.ec2.start import launch

    return launch(made, _world(made))


def _world(made: plan.Plan) -> "World":
    from launch.ec2.start import World
    from launch.ec2.stop import Clock

    todo = planner.inner(made)
    say = partial(print, flush=True)
    return World(Aws(todo.cluster.region), Clock(), say, _may_detach, partial(_plan, todo.job))


def _may_detach() -> bool:
    """Asks the user who pressed Ctrl-C; without a terminal, or at a second Ctrl-C, the job is stopped."""
    if not sys.stdin.isatty():
        return False
    try:
        return input("\nstop the job, or detach and let it go on? [stop/detach] ").strip().lower().startswith("d")
    except (KeyboardInterrupt, EOFError):
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
