"""`python -m launch.local`: the facts of this machine, handed to the launch core."""

import json
import os
import shlex
import sys
from datetime import datetime
from functools import partial

from launch.core import cli, shell
from launch.local.options import LocalOptions
from launch.local.planner import plan

ABOUT = """\
Trains on this machine, in as many processes as you say.  Settings of the training go on the same line.

  python -m launch.local --nproc-per-node 2 --model cnn --dataset digits --epochs 5
"""

LOCAL = cli.Backend(
    prog="python -m launch.local",
    about=ABOUT,
    options=LocalOptions,
    plan=partial(plan, python=sys.executable, now=datetime.now()),
    show=shlex.join,
    show_json=json.dumps,
    perform=partial(shell.run, env=os.environ),
)

if __name__ == "__main__":
    sys.exit(cli.main(LOCAL, sys.argv[1:]))
