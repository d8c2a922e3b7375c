# PYTHON_ARGCOMPLETE_OK
"""`python -m launch.local`: the command line, and the command that it runs."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from launch.core import cli, shell
from launch.core.job import Job
from launch.core.shell import this_python
from launch.core.terminal import say
from launch.local.backend import BACKEND
from launch.local.options import LocalOptions
from launch.local.planner import LocalPlan, plan
from trainer import outcome
from trainer.contract import LAUNCHER, STOPPED, Exit, random_letters
from trainer.errors import DataError, one_line
from trainer.outcome import Outcome, state_of
from trainer.process.parent import TORCHRUN_WITHIN_S, end_with_parent

ABOUT = """\
Trains on this machine, in the number of processes you choose.  Training settings go on the same line.

  python -m launch.local --nproc-per-node 2 --model cnn --dataset digits --epochs 5

Ctrl-C saves and stops with exit code 75; the same command with --run-dir then resumes.  The exit code is 130 if it
stopped before it could save.
"""


def main(argv: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """Run the command line and return its exit code.  env: the training's environment, by default this process's."""
    return cli.main(launcher(env), argv)


def launcher(env: Mapping[str, str] | None = None) -> "cli.Launcher[LocalOptions, LocalPlan]":
    """The command line, which launch.api uses as well."""
    return cli.Launcher(
        backend=BACKEND,
        about=ABOUT,
        plan=_plan,
        show=_shown,
        perform=partial(perform, env=os.environ if env is None else env),
        name=lambda plan: plan.run_dir.name,
    )


def _plan(job: Job[LocalOptions]) -> LocalPlan:
    """The plan, with a problem where a folder of images is missing, on which the trainer would end."""
    planned = plan(job, python=this_python(), now=datetime.now(), letters=random_letters())
    folder = job.train.folders.get("data_dir")
    if folder is None or not (job.train.needs_data and job.train.reads_folder) or folder.expanduser().is_dir():
        return planned
    problem = DataError(f"no folder {one_line(folder, 300)}; point --data-dir at the one that holds train/ and val/.")
    return replace(planned, problem=problem)


def _shown(local: LocalPlan, form: bool | str) -> str:
    """The command, or the plan as JSON in the other backends' format."""
    if form != "json":
        return str(local)
    from launch.core.plan import Plan, as_data, json_text  # --help does not need it

    problems = (local.problem,) if local.problem else ()
    plan = Plan("training on this machine", local, command=local.command, warnings=local.warnings, problems=problems)
    return json_text({**as_data(plan), "run_dir": str(local.run_dir)})


def perform(plan: LocalPlan, env: Mapping[str, str]) -> Outcome:
    """Run the training; return the outcome in its run folder, else the one of its exit code.

    Ctrl-C, SIGTERM and SIGHUP stop it: 75 if it has saved, else 130.  It also saves and ends if this process is killed.
    Raises MachineError if another process killed it.
    """
    # Forward SIGTERM, on which torchrun and the trainer end without printing a message.
    code = shell.run(plan.command, {**env, LAUNCHER: str(os.getpid())}, stop_signal=signal.SIGTERM)
    if plan.is_script and plan.run_dir.is_dir():  # the trainer says it itself
        say(f"results: {plan.run_dir}")
    written = outcome.read(plan.run_dir)
    if written and written.exit_code == code:
        return written
    if code == Exit.INTERRUPTED:
        return Outcome("stopped", STOPPED, "stopped before it had saved")
    return Outcome(state_of(code), code)


if __name__ == "__main__":
    end_with_parent(os.environ, within_s=TORCHRUN_WITHIN_S + 10)  # the parent is a sweep; torchrun ends with this one
    sys.exit(main(sys.argv[1:]))
