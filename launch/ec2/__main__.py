# PYTHON_ARGCOMPLETE_OK
"""`python -m launch.ec2`."""

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from launch.core import cli
from launch.core.job import Job
from launch.core.job_verbs import job_verbs
from launch.ec2.backend import BACKEND, Runtime
from launch.ec2.options import VERB_OPTIONS, Ec2Options, VerbOptions
from trainer.outcome import Outcome

if TYPE_CHECKING:
    from launch.ec2.regions import Plans
    from launch.ec2.verbs import Ec2Jobs

ABOUT = """\
Creates EC2 nodes, trains across them, and removes everything at the end.  Training settings go on the same line.
--dry-run shows the plan and its price, --dry-run=full every request.  A start asks first, or takes --yes or --max-usd.

  python -m launch.ec2 --nodes 2 --dry-run
  python -m launch.ec2 --nodes 2 --max-usd 50 --dataset imagenet --model resnet50 --epochs 16 --batch-size 256
  python -m launch.ec2 --nodes 2 --region us-east-1,us-west-2 --wait-for-capacity 3
"""


# Additions to the help of verbs on this backend.
NOTES = {
    "logs": """\
With several nodes, each line begins with the rank of its node: [1].  The last half hour of one of them:

  {command} logs JOB --node 1 --since 30
""",
    "leaks": """\
A resource is a leak if its job is past the time limit, or has no nodes any more and does not wait for capacity.
Snapshots, logs and job folders never are.
""",
    "attach": "Lost nodes are replaced.  At its end the job is removed, and its results are fetched into runs/.\n",
}


def main(argv: Sequence[str], runtime: Runtime | None = None) -> int:
    """Runs the command line and returns its exit code."""
    return cli.main(launcher(runtime), argv)


def launcher(runtime: Runtime | None = None) -> "cli.Launcher[Ec2Options, Plans]":
    """The command line, which launch.api uses as well."""
    runtime = runtime or Runtime()
    return cli.Launcher(
        backend=BACKEND,
        about=ABOUT,
        plan=partial(_plan, runtime),
        show=_shown,
        brief=lambda plans: plans.brief,
        quotes=lambda plans: plans.quotes,
        approve=runtime.approve,
        perform=partial(_perform, runtime),
        verbs=job_verbs(BACKEND.command, partial(_jobs, runtime), VerbOptions, VERB_OPTIONS, NOTES),
        check=_check,
        jobs=partial(_jobs, runtime),
        name=lambda plans: plans.job,
        env=runtime.env,
    )


# Heavier modules are imported where they are used, so that --help stays fast.


def _jobs(runtime: Runtime, options: VerbOptions) -> "Ec2Jobs":
    from launch.ec2.verbs import Ec2Jobs

    return Ec2Jobs(runtime)


def _check(job: Job[Ec2Options]) -> None:
    from launch.ec2.checks import resolve

    resolve(job)


def _plan(runtime: Runtime, job: Job[Ec2Options]) -> "Plans":
    from launch.ec2.regions import plan_regions

    return plan_regions(job, runtime)


def _shown(plans: "Plans", form: bool | str) -> str:
    from launch.ec2.regions import data, full_text, text

    return {"full": full_text, "json": data}.get(str(form), text)(plans)


def _perform(runtime: Runtime, plans: "Plans") -> Outcome | None:
    if plans.places[0].plan.payload.job.where.queue is not None:
        from launch.ec2.batch import put_into_queue

        put_into_queue(plans, runtime)
        return None
    from launch.ec2.search import launch_in_regions

    return launch_in_regions(plans, runtime)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
