# PYTHON_ARGCOMPLETE_OK
"""`python -m launch.sagemaker`: the command line."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from launch.core import cli
from launch.core.job_verbs import job_verbs
from launch.core.options import RegionOptions
from launch.sagemaker.backend import BACKEND
from launch.sagemaker.options import VERB_OPTIONS, SageMakerOptions

if TYPE_CHECKING:
    from launch.core.job import Job
    from launch.sagemaker.planner import SageMakerPlan
    from launch.sagemaker.runtime import Runtime, RuntimeOf
    from launch.sagemaker.verbs import SageMakerJobs
    from trainer.outcome import Outcome

ABOUT = """\
Starts a SageMaker training job through the SDK's PyTorch estimator or boto3 alone; follows it, and
fetches the result.  Training settings go on the same line.
--dry-run shows the plan and its price, --dry-run=full every request.  A start asks first, or takes --yes or --max-usd.

  python -m launch.sagemaker --instance-type ml.g5.12xlarge --dry-run
  python -m launch.sagemaker --instance-type ml.g5.12xlarge --rehearse
  python -m launch.sagemaker --instance-type ml.g5.12xlarge --spot --max-hours 2 --max-usd 20 --epochs 20
"""

# Additions to the help of verbs on this backend.
NOTES = {
    "logs": """\
With several instances, each line begins with the number of its instance: [1].  The last half hour of one of them:

  {command} logs JOB --node 2 --since 30
""",
    "leaks": "A leak is a job past its time limit, or instances kept (--warm-pool-s) after a job.\n",
    "ssh": """\
The job must have been started with --remote-debug; the shell is in its container.
""",
    "attach": "At its end the result is fetched into runs/.\n",
}


# Imports are within the functions, so that --help stays fast.


def main(argv: Sequence[str], runtime_of: "RuntimeOf | None" = None) -> int:
    """Run the command line and return its exit code.  runtime_of: a region's runtime."""
    return cli.main(launcher(runtime_of), argv)


def launcher(runtime_of: "RuntimeOf | None" = None) -> "cli.Launcher[SageMakerOptions, SageMakerPlan]":
    """The command line, which launch.api uses as well."""
    runtime_of = runtime_of or _terminal

    def plan(job: "Job[SageMakerOptions]") -> "SageMakerPlan":
        from launch.sagemaker.start import prepare

        return prepare(job, runtime_of(job.where.region))

    def perform(plan: "SageMakerPlan") -> "Outcome | None":
        from launch.sagemaker.start import launch

        return launch(plan, runtime_of(plan.payload.region))

    def approve(what: str) -> None:
        runtime_of(None).approve(what)

    def jobs(options: RegionOptions) -> "SageMakerJobs":
        from launch.sagemaker.verbs import SageMakerJobs

        return SageMakerJobs(runtime_of(options.region), runtime_of)

    return cli.Launcher(
        backend=BACKEND,
        about=ABOUT,
        plan=plan,
        perform=perform,
        brief=lambda plan: plan.brief,
        quotes=lambda plan: () if plan.payload.running else plan.quotes,
        approve=approve,
        verbs=job_verbs(BACKEND.command, jobs, RegionOptions, VERB_OPTIONS, NOTES, lacks=("forward",)),
        check=_check,
        jobs=jobs,
        name=lambda plan: plan.payload.folder.job,
        env=os.environ,
    )


def _terminal(region: str | None) -> "Runtime":
    from launch.sagemaker.runtime import terminal

    return terminal(region)


def _check(job: "Job[SageMakerOptions]") -> None:
    from launch.sagemaker.checks import resolve

    resolve(job)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
