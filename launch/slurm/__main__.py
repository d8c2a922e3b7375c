"""`python -m launch.slurm`: the clock, the terminal, the environment and Slurm, handed to what decides."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from launch.core import cli
from launch.core.job import Job
from launch.slurm.options import SlurmOptions
from launch.slurm.verbs import verbs
from trainer.errors import TrainerError

if TYPE_CHECKING:
    from launch.slurm.commands import Acts
    from launch.slurm.planner import Facts, SlurmPlan
    from launch.slurm.submit import World

ABOUT = """\
Submits the training to Slurm as one script: it saves before its time limit, and goes on in the next start.
Settings of the training go on the same line.  Run it on a login node, in a folder that the nodes share.

  python -m launch.slurm --nodes 2 --gpus-per-node 4 --cpus-per-task 8 --dry-run
  python -m launch.slurm --nodes 2 --gpus-per-node 4 --cpus-per-task 8 --partition gpu --time 4:00:00 --dataset imagenet
"""

DEFAULTS = {"progress": False}


def main(argv: list[str]) -> int:
    """Runs the command line and returns its exit code."""
    backend = cli.Backend(
        prog="python -m launch.slurm",
        about=ABOUT,
        options=SlurmOptions,
        plan=_plan,
        show=_show,
        show_json=_show_json,
        perform=_perform,
        problem=lambda made: made.problems[0] if made.problems else None,
        verbs=verbs(_acts),
        defaults=DEFAULTS,
        check=lambda job: None,
    )
    return cli.main(backend, argv)


# The rest is imported where it is used: --help needs none of it.


def _plan(job: Job[SlurmOptions]) -> "SlurmPlan":
    """Checks before Slurm is asked, then looks everything up, and asks Slurm whether it would take the job."""
    from datetime import datetime

    from launch.core.names import default_job_name
    from launch.slurm import checks, planner
    from launch.slurm.lookup import Slurm, environment
    from launch.slurm.script import directives

    options, processes = checks.resolve(job)
    name = options.job_name or (job.train.run_dir and _named(job.train.run_dir))
    name = name or default_job_name(job.train.dataset, job.train.model, datetime.now())
    made = planner.plan(job, options, processes, name, _facts(job, name))
    if made.problems or made.running or made.is_done:
        return made
    try:
        slurm = Slurm(environment(os.environ, directives(made.placed)))
        return planner.tried(made, slurm.expected_start(made.script, options), None)
    except TrainerError as refusal:
        return planner.tried(made, None, refusal)


def _named(run_dir: Path) -> str:
    """The job's name where only the folder has one: the same each time."""
    import re

    return re.sub(r"[^A-Za-z0-9]+", "-", run_dir.name)[:48].strip("-")


def _facts(job: Job[SlurmOptions], name: str) -> "Facts":
    from launch.slurm.lookup import Slurm, environment, read_folder
    from launch.slurm.names import folder_of
    from launch.slurm.planner import Facts

    cwd = Path.cwd()
    folder = read_folder(cwd / job.train.run_dir if job.train.run_dir else folder_of(name, cwd))
    slurm = Slurm(environment(os.environ))
    try:
        partitions, queue = tuple(slurm.partitions()), tuple(slurm.queue())
    except TrainerError as trouble:
        return Facts(folder, cwd, sys.executable, trouble=trouble)
    return Facts(folder, cwd, sys.executable, partitions, queue)


def _show(made: "SlurmPlan") -> str:
    from launch.slurm.show import as_text

    return as_text(made)


def _show_json(made: "SlurmPlan") -> str:
    from launch.slurm.show import as_json

    return as_json(made)


def _perform(made: "SlurmPlan") -> int:
    from launch.slurm.submit import launch

    return launch(made, _world())


def _acts() -> "Acts":
    from launch.slurm.commands import Acts

    return Acts(_world(), Path.cwd())


def _world() -> "World":
    from launch.core.clock import Clock
    from launch.slurm.submit import World

    return World(os.environ, Clock(), cli.say)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
