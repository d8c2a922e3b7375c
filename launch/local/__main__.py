# PYTHON_ARGCOMPLETE_OK
"""`python -m launch.local`: the command line."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial

from launch.core import cli
from launch.core.shell import this_python
from launch.local.backend import BACKEND
from launch.local.perform import perform
from launch.local.planner import LocalPlan, plan
from trainer.contract import random_letters
from trainer.process.parent import TORCHRUN_WITHIN_S, end_with_parent

ABOUT = """\
Trains on this machine, in the number of processes you choose.  Training settings go on the same line.

  python -m launch.local --nproc-per-node 2 --model cnn --dataset digits --epochs 5

Ctrl-C saves and stops with exit code 75; the same command with --run-dir then resumes.  The exit code is 130 if it
stopped before it could save.
"""


def main(argv: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """Run the command line and return its exit code.  env: the training's environment, by default this process's."""
    launcher = cli.Launcher(
        backend=BACKEND,
        about=ABOUT,
        plan=partial(plan, python=this_python(), now=datetime.now(), letters=random_letters()),
        show=_shown,
        perform=partial(perform, env=os.environ if env is None else env),
    )
    return cli.main(launcher, argv)


def _shown(local: LocalPlan, form: bool | str) -> str:
    """The command, or the plan as JSON in the other backends' format."""
    if form != "json":
        return shlex.join(local.command)
    from launch.core.plan import Plan, as_data, json_text  # --help does not need it

    plan = Plan("training on this machine", local, command=local.command)
    return json_text({**as_data(plan), "run_dir": str(local.run_dir)})


if __name__ == "__main__":
    end_with_parent(os.environ, within_s=TORCHRUN_WITHIN_S + 10)  # the parent is a sweep; torchrun ends with this one
    sys.exit(main(sys.argv[1:]))
