"""Jobs on SageMaker from Python, for notebooks: the functions of the command line.

import launch.sagemaker as training  # `sagemaker` is the name of SageMaker's SDK
plan = training.plan(instance_type="ml.g5.12xlarge", dataset="cifar10", epochs=5)
print(plan.brief)
job = training.launch(plan)
job.follow()

All functions may raise TrainerError, which a notebook shows as one sentence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from launch.sagemaker.planner import SageMakerPlan
    from launch.sagemaker.runtime import Runtime
    from launch.sagemaker.training_job import TrainingJob

# Imports are within the functions, as --help imports this module with its package.


def plan(**settings: Any) -> "SageMakerPlan":
    """Plan a job, with settings named as the flags; nothing is started.  Raises SettingsError.

    print(plan.brief) shows the price; print(plan) shows every request, too.
    """
    from launch.core.cli import job_of
    from launch.sagemaker.backend import BACKEND
    from launch.sagemaker.start import prepare

    job = job_of(BACKEND, settings)
    return prepare(job, _runtime(job.where.region))


def launch(plan: "SageMakerPlan") -> "JobHandle":
    """Start the job of `plan` and return at once.  Raises TrainerError if the plan has problems or AWS rejects it."""
    from launch.sagemaker.start import begin

    if plan.problem:
        raise plan.problem
    runtime = _runtime(plan.payload.region)
    return JobHandle(begin(plan, runtime), runtime)


def estimator(plan: "SageMakerPlan") -> Any:
    """The SDK's estimator, sagemaker.pytorch.PyTorch, of `plan`, such as for a tuning job.

    Uploads its source; nothing is started.  Raises TrainerError if the plan has problems or AWS rejects it.
    """
    from launch.core.perform import perform
    from launch.core.plan import Request
    from launch.sagemaker.request import OPERATION
    from launch.sagemaker.sdk import made

    if plan.problem:
        raise plan.problem
    aws = _runtime(plan.payload.region).aws
    uploads = [step for step in plan.steps if isinstance(step, Request) and step.operation != OPERATION]
    perform(uploads, aws.call, lambda _: None)
    return made(plan.payload.description, aws.session, aws.client("sagemaker"))


def attach(name: str, region: str | None = None) -> "JobHandle":
    """The last start of the job called `name`.  Raises SettingsError if there is none."""
    from launch.sagemaker.training_jobs import newest

    runtime = _runtime(region)
    return JobHandle(newest(runtime.aws, name, "attach", runtime.clock.utc()), runtime)


def jobs(region: str | None = None) -> list["JobHandle"]:
    """The toolkit's jobs of the last day, and older ones that cost money now, newest first."""
    from launch.sagemaker.training_jobs import recent

    runtime = _runtime(region)
    return [JobHandle(one, runtime) for one in recent(runtime.aws, runtime.clock.utc())]


def costs(region: str | None = None) -> str:
    """The costs of jobs now, and which should have ended, as `python -m launch.sagemaker leaks` shows them."""
    from launch.core.jobs import NO_LEAKS, leaks_as_text
    from launch.core.terminal import harmless
    from launch.sagemaker.leaks import COLUMNS, leaks_of
    from launch.sagemaker.training_jobs import costing

    runtime = _runtime(region)
    now = runtime.clock.utc()
    findings = leaks_of(costing(runtime.aws, now), now)
    return harmless(leaks_as_text(COLUMNS, findings)) if findings else NO_LEAKS


@dataclass(repr=False)
class JobHandle:
    """A started job.  Every method looks it up again, and may raise AwsError."""

    _training_job: "TrainingJob"
    _runtime: "Runtime"

    def __repr__(self) -> str:
        """The state at the last look-up."""
        from trainer.errors import one_line

        one = self._training_job
        return one_line(f"<job {self.name}: {one.machines}, {one.detail or one.status}>", 300)

    @property
    def name(self) -> str:
        return self._training_job.name

    @property
    def training_job(self) -> "TrainingJob":
        """SageMaker's current description: status, started, ended, trained_s, billed_s, ..."""
        from launch.sagemaker.training_jobs import refreshed

        self._training_job = refreshed(self._runtime.aws, self._training_job)
        return self._training_job

    def follow(self, *, everything: bool = False, poll_s: float = 10.0) -> None:
        """Show the job until it is over.  Raises Ended if the training failed.  Interrupting leaves it running.

        everything: the whole log, not only the trainer's messages for the user; poll_s: seconds between polls.
        """
        from launch.sagemaker.follow import follow, is_headline

        shows = None if everything else is_headline
        follow(self._training_job, self._runtime, fetch=False, shows=shows, poll_s=poll_s)

    def status(self) -> str:
        """The text of `python -m launch.sagemaker status JOB`."""
        from launch.aws.progress import newest
        from launch.core.terminal import harmless
        from launch.sagemaker.status import job_state

        folder = self._training_job.folder
        epoch = newest(self._runtime.aws, folder) if folder else None
        return harmless(str(job_state(self.training_job, epoch, self._runtime.clock.utc())))

    def metrics(self) -> list[Mapping[str, Any]]:
        """One record per epoch; see trainer/README.md.  While the job runs they arrive with the checkpoints."""
        from launch.aws.progress import ALL_BYTES, records

        folder = self._training_job.folder
        return records(self._runtime.aws, folder, ALL_BYTES) if folder else []

    def cost(self) -> float:
        """USD so far; see TrainingJob.cost."""
        return self.training_job.cost(self._runtime.clock.utc())

    def result(self, folder: str | Path = "runs") -> Path:
        """Fetch the weights, metrics and curves into `folder`/NAME, and return that path."""
        from launch.sagemaker.result import fetch_result
        from trainer.settings.argparser import home_path

        return fetch_result(self._runtime.aws, self.training_job, home_path(folder))

    def stop(self) -> None:
        """Stop the job and release its warm pool.  Idempotent."""
        from launch.aws.retry import is_busy, retrying
        from launch.sagemaker.stop import end

        clock, say = self._runtime.clock, self._runtime.say
        now = retrying(lambda: self.training_job, clock, say, is_busy)  # as the stop command does
        end(lambda _: self._runtime.aws, [now], clock, say)


def _runtime(region: str | None) -> "Runtime":
    from launch.sagemaker.runtime import notebook

    return notebook(region)
