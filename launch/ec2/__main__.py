# PYTHON_ARGCOMPLETE_OK
"""`python -m launch.ec2`."""

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from launch.core import cli
from launch.core.job import Job
from launch.core.plan import Plan, as_json, as_text
from launch.ec2.backend import BACKEND
from launch.ec2.options import Ec2Options
from launch.ec2.runtime import Runtime
from launch.ec2.verbs import verbs
from trainer.outcome import Outcome

if TYPE_CHECKING:
    from launch.ec2.planner import Launch

ABOUT = """\
Creates EC2 nodes, trains across them, and removes everything at the end.  Settings of the training go on the same
line.  --dry-run shows every request and the price before anything is spent.

  python -m launch.ec2 --nodes 2 --dry-run
  python -m launch.ec2 --nodes 2 --max-usd 50 --dataset imagenet --model resnet50 --epochs 16 --batch-size 256
"""


def main(argv: Sequence[str], runtime: Runtime | None = None) -> int:
    """Runs the command line and returns its exit code."""
    runtime = runtime or Runtime()
    launcher: cli.Launcher[Ec2Options, Plan[Launch]] = cli.Launcher(
        backend=BACKEND,
        about=ABOUT,
        plan=partial(_plan, runtime),
        show=as_text,
        show_json=as_json,
        perform=partial(_perform, runtime),
        problem=lambda plan: plan.problem,
        verbs=verbs(runtime),
        check=_check,
        env=runtime.env,
    )
    return cli.main(launcher, argv)


# The rest is imported on use: --help needs none of it.


def _check(job: Job[Ec2Options]) -> None:
    from launch.ec2.checks import resolve

    resolve(job)


def _plan(runtime: Runtime, job: Job[Ec2Options]) -> "Plan[Launch]":
    from launch.ec2.planning import plan_job

    return plan_job(job, runtime)


def _perform(runtime: Runtime, plan: "Plan[Launch]") -> Outcome | None:
    from launch.ec2.start import launch

    runtime.say(plan.brief)
    return launch(plan, runtime)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
