# PYTHON_ARGCOMPLETE_OK
"""`python -m launch.local`: the interpreter and environment of this process, handed to what decides."""

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial

from launch.core import cli
from launch.core.interpreter import this_python
from launch.local.backend import BACKEND
from launch.local.perform import perform
from launch.local.planner import plan
from trainer.process.parent import TORCHRUN_WITHIN_S, end_with_parent

ABOUT = """\
Trains on this machine, in the number of processes you choose.  Training settings go on the same line.

  python -m launch.local --nproc-per-node 2 --model cnn --dataset digits --epochs 5

Ctrl-C saves and stops with exit code 75; the same command with --run-dir then resumes.  The exit code is 130 if it
stopped before it could save.
"""


def main(argv: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """Runs the command line and returns its exit code.  env: of the training, this process's if None."""
    launcher = cli.Launcher(
        backend=BACKEND,
        about=ABOUT,
        plan=partial(plan, python=this_python(), now=datetime.now(), process=os.getpid()),
        show=lambda local: shlex.join(local.command),
        show_json=lambda local: json.dumps({"command": local.command, "run_dir": str(local.run_dir)}, indent=2),
        perform=partial(perform, env=os.environ if env is None else env),
    )
    return cli.main(launcher, argv)


if __name__ == "__main__":
    end_with_parent(os.environ, within_s=TORCHRUN_WITHIN_S + 10)  # a sweep's, which torchrun follows
    sys.exit(main(sys.argv[1:]))
