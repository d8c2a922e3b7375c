"""`python -m launch.local`: the facts of this machine, handed to the launch core."""

import json
import os
import shlex
import sys
from datetime import datetime
from functools import partial

from launch.core import cli, shell
from launch.local.backend import BACKEND
from launch.local.planner import plan
from trainer.outcome import Outcome, state_of

ABOUT = """\
Trains on this machine, in as many processes as you say.  Settings of the training go on the same line.

  python -m launch.local --nproc-per-node 2 --model cnn --dataset digits --epochs 5
"""


def _perform(plan: tuple[str, ...]) -> Outcome:
    code = shell.run(plan, env=os.environ)
    return Outcome(state_of(code), code)


LOCAL = cli.Launcher(
    backend=BACKEND,
    about=ABOUT,
    plan=partial(plan, python=sys.executable, now=datetime.now()),
    show=shlex.join,
    show_json=json.dumps,
    perform=_perform,
)

if __name__ == "__main__":
    sys.exit(cli.main(LOCAL, sys.argv[1:]))
