"""`python -m launch.nothing`."""

import json
import sys

from launch.nothing.backend import BACKEND, NothingOptions

from launch.core import cli
from launch.core.job import Job
from trainer.outcome import Outcome, state_of


def _plan(job: Job[NothingOptions]) -> str:
    return f"{job.where.seats} processes do not train {job.train.label}"


NOTHING = cli.Launcher(
    backend=BACKEND,
    about="Trains nothing.",
    plan=_plan,
    show=str,
    show_json=json.dumps,
    perform=lambda plan: Outcome(state_of(0), 0),
)

if __name__ == "__main__":
    sys.exit(cli.main(NOTHING, sys.argv[1:]))
