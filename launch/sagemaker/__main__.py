"""`python -m launch.sagemaker`: the clock, the terminal and AWS, handed to what decides."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from launch.core import cli, plan
from launch.sagemaker.options import DEFAULTS, SageMakerOptions
from launch.sagemaker.verbs import verbs

if TYPE_CHECKING:
    from launch.core.job import Job
    from launch.sagemaker.start import World

ABOUT = """\
Starts a SageMaker training job through the SDK's PyTorch estimator, follows it, and fetches the result.  Settings of
the training go on the same line.  --dry-run shows every request and the price before anything is spent.

  python -m launch.sagemaker --instance-type ml.p3.8xlarge --dry-run
  python -m launch.sagemaker --instance-type ml.p3.8xlarge --rehearse
  python -m launch.sagemaker --instance-type ml.g5.12xlarge --spot --max-hours 2 --max-usd 20 --epochs 20
"""

say = partial(print, flush=True)  # through a pipe, too, at once


def main(argv: list[str]) -> int:
    """Runs the command line and returns its exit code."""
    backend = cli.Backend(
        prog="python -m launch.sagemaker",
        about=ABOUT,
        options=SageMakerOptions,
        plan=_plan,
        show=plan.as_text,
        show_json=plan.as_json,
        perform=_perform,
        problem=lambda made: made.problems[0] if made.problems else None,
        verbs=verbs(_world),
        defaults=DEFAULTS,
        check=_check,
        rehearsed_in=os.environ,
    )
    return cli.main(backend, argv)


# The rest is imported where it is used: --help needs none of it.


def _check(job: "Job[SageMakerOptions]") -> None:
    from launch.sagemaker.checks import resolve

    resolve(job)


def _plan(job: "Job[SageMakerOptions]") -> plan.Plan:
    from launch.sagemaker.start import prepare

    return prepare(job, _world(job.where.region))


def _perform(made: plan.Plan) -> int:
    from launch.sagemaker.planner import inner
    from launch.sagemaker.start import launch

    return launch(made, _world(inner(made).region))


def _world(region: str | None) -> "World":
    from launch.core.aws import Aws
    from launch.core.clock import Clock
    from launch.sagemaker.start import World

    return World(Aws(region), Clock(), say, cli.may_detach, Path("runs"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
