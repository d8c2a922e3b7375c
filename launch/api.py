"""The backends from Python: plan, start, status, jobs, logs, fetch and stop, with settings named as the flags.

from launch.api import ec2  # or sagemaker, slurm, local
plan = ec2.plan(nodes=2, dataset="cifar10", max_hours=1)
print(plan.brief)
job = ec2.start(plan)
ec2.status(job).status

Every function may raise TrainerError, whose text is one sentence with the remedy.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainer.errors import SettingsError

if TYPE_CHECKING:
    from launch.core.cli import Launcher
    from launch.core.jobs import Results, Summary
    from launch.core.plan import Plan

# Imports are within the functions, so that a notebook imports one backend only.


@dataclass(frozen=True)
class Client:
    """The functions of one backend.  `where` are flags of its verbs, such as region="us-east-1"."""

    module: str  # its package

    @property
    def name(self) -> str:
        """The backend's name."""
        return self.module.rpartition(".")[2]

    @property
    def launcher(self) -> Launcher[Any, Any]:
        launcher: Launcher[Any, Any] = import_module(f"{self.module}.__main__").launcher()
        return launcher

    def plan(self, **settings: Any) -> Plan[Any]:
        """Plan a job; nothing is started.  print(plan.brief) shows the price, print(plan) every request."""
        from launch.core.cli import job_of

        launcher = self.launcher
        returns = {"detach": True} if "detach" in launcher.backend.options.model_fields else {}
        plan: Plan[Any] = launcher.plan(job_of(launcher.backend, {**returns, **settings}))
        return plan

    def start(self, plan: Plan[Any]) -> str:
        """Start the job of `plan`; return its name at once, or after its end with detach=False."""
        launcher = self.launcher
        if problem := launcher.problem(plan):
            raise problem
        launcher.perform(plan)
        return launcher.name(plan)

    def status(self, job: str, **where: Any) -> Summary:
        """One job, as `status JOB --json` prints it."""
        jobs, options = self.asked("status", job=job, **where)
        summary: Summary = jobs.state(options).summary
        return summary

    def jobs(self, **where: Any) -> list[Summary]:
        """All jobs, as `status --json` prints them."""
        jobs, options = self.asked("status", **where)
        return [job for overview in jobs.overview(options) for job in overview.jobs]

    def logs(self, job: str, **where: Any) -> list[str]:
        """The lines of the job's log so far."""
        lines: list[str] = []
        jobs, options = self.asked("logs", job=job, **where)
        jobs.log(options).show(lambda line: lines.append(str(line)))
        return lines

    def fetch(self, job: str, **where: Any) -> Results:
        """Fetch the job's results into runs/JOB, without large checkpoints unless all=True."""
        from launch.core.jobs import everything, without_checkpoints

        jobs, options = self.asked("fetch", job=job, **where)
        results: Results = jobs.fetch(options, everything if options.all else without_checkpoints)
        return results

    def stop(self, job: str, **where: Any) -> None:
        """Stop the job, and wait until nothing of it is left that costs money."""
        jobs, options = self.asked("stop", job=job, **where)
        jobs.stop(options)

    def asked(self, verb: str, **options: Any) -> tuple[Any, Any]:
        """The backend's jobs, and the options of a verb."""
        from trainer.settings import flags

        launcher = self.launcher
        if verb not in launcher.verbs:
            raise SettingsError(f"{launcher.backend.name} has no {verb}: start() returns at the end of the job.")
        (built,) = flags.build(options, [launcher.verbs[verb].options])
        assert launcher.jobs is not None  # as of every backend with verbs
        return launcher.jobs(built), built


ec2, sagemaker, slurm = Client("launch.ec2"), Client("launch.sagemaker"), Client("launch.slurm")
local = Client("launch.local")  # plan and start, which returns at the end; it has no jobs to look for
