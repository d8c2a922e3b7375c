"""`python -m launch.nothing`."""

import json
import sys

from launch.nothing.backend import BACKEND, NothingOptions

from launch.core import cli
from launch.core.job import Job
from launch.core.job_verbs import job_verbs
from launch.core.jobs import Jobs, Leak
from launch.core.terminal import say
from trainer.outcome import Outcome, state_of


def _plan(job: Job[NothingOptions]) -> str:
    return f"{job.where.seats} processes do not train {job.train.label}"


def _jobs() -> Jobs:
    from tests.launch.core.listed import ListedJobs

    jobs = ListedJobs([Leak("one", "here", is_leak=False, why="idle", usd_per_hour=0.0, rows=(("one", "here"),))])
    jobs.say = say
    return jobs


NOTHING = cli.Launcher(
    backend=BACKEND,
    about="Trains nothing.",
    plan=_plan,
    show=lambda plan, form: json.dumps(plan) if form == "json" else plan,
    perform=lambda plan: Outcome(state_of(0), 0),
    verbs=job_verbs(BACKEND.command, lambda options: _jobs(), lacks=("ssh",)),
)

if __name__ == "__main__":
    sys.exit(cli.main(NOTHING, sys.argv[1:]))
