# PYTHON_ARGCOMPLETE_OK
"""`python -m launch.slurm`: the command line."""

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from launch.core import cli
from launch.core.job import Job
from launch.core.job_verbs import job_verbs
from launch.core.terminal import say
from launch.slurm.backend import BACKEND
from launch.slurm.options import VERB_OPTIONS, SlurmOptions
from trainer.outcome import Outcome

if TYPE_CHECKING:
    from launch.slurm.planner import SlurmPlan
    from launch.slurm.runtime import Runtime
    from launch.slurm.verbs import SlurmJobs

ABOUT = """\
Submits a training to Slurm as one batch script, which saves before its time limit and requeues itself to continue.
Training settings go on the same line.  Run it on a login node, in a folder that the nodes share.

  python -m launch.slurm --nodes 2 --gpus-per-node 4 --cpus-per-task 8 --dry-run
  python -m launch.slurm --nodes 2 --gpus-per-node 4 --cpus-per-task 8 --partition gpu --time 4:00:00 --dataset imagenet
"""


# Additions to the help of verbs on this backend.  JOB is a name, or Slurm's id.
NOTES = {
    "status": "JOB is the name of a job or its Slurm id; jobs of others are not shown.\n",
    "fetch": "The nodes share the job's folder with this machine: it is only named.\n",
    "stop": """\
The job saves first; the same command with --job-name resumes it.  Jobs that were not submitted by this toolkit are
never touched.
""",
    "attach": "It exits with the training's exit code.\n",
}


def main(argv: Sequence[str], runtime: "Runtime | None" = None) -> int:
    """Runs the command line and returns its exit code.  runtime: this process's if None."""
    return cli.main(launcher(runtime), argv)


def launcher(runtime: "Runtime | None" = None) -> "cli.Launcher[SlurmOptions, SlurmPlan]":
    """The command line, which launch.api uses as well."""
    return cli.Launcher(
        backend=BACKEND,
        about=ABOUT,
        plan=partial(_plan, runtime),
        perform=partial(_perform, runtime),
        verbs=job_verbs(
            BACKEND.command,
            partial(_jobs, runtime),
            options=VERB_OPTIONS,
            notes=NOTES,
            lacks=("leaks", "ssh", "forward"),
        ),
        jobs=partial(_jobs, runtime),
        name=lambda plan: plan.payload.job.name,
    )


# Heavier modules are imported where they are used, so that --help stays fast.


def _this_process() -> "Runtime":
    from launch.core.clock import Clock
    from launch.slurm.runtime import Runtime

    return Runtime(os.environ, Path.cwd(), sys.executable, Clock(), say)


def _jobs(runtime: "Runtime | None", options: object) -> "SlurmJobs":
    from launch.slurm.verbs import SlurmJobs

    return SlurmJobs(runtime or _this_process())


def _plan(runtime: "Runtime | None", job: Job[SlurmOptions]) -> "SlurmPlan":
    from launch.slurm.submit import plan_for

    return plan_for(job, runtime or _this_process())


def _perform(runtime: "Runtime | None", plan: "SlurmPlan") -> Outcome | None:
    from launch.slurm.submit import launch

    return launch(plan, runtime or _this_process())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
