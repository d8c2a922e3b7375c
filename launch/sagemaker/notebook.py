"""Jobs on SageMaker from Python, for notebooks: what the command line does, with values instead of text.

from launch import sagemaker
plan = sagemaker.plan(instance_type="ml.g5.12xlarge", dataset="cifar10", epochs=5)
print(plan.brief)
job = sagemaker.launch(plan)
job.follow()

All of it may raise TrainerError, which a notebook shows as one sentence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from launch.core.plan import Plan
    from launch.sagemaker.runs import Run
    from launch.sagemaker.start import World

# Imports are within the functions, as this is part of the package that --help imports.


def plan(**settings: Any) -> "Plan":
    """The plan of a job, by the names that the command line has; nothing is started.  Raises SettingsError.

    print(plan.brief) shows what it costs, and print(plan) every request, too.
    """
    from typing import cast

    from launch.core.job import Job
    from launch.sagemaker.options import DEFAULTS, SageMakerOptions
    from launch.sagemaker.start import prepare
    from trainer.config import TrainConfig
    from trainer.settings import flags

    where, train = flags.build(flags.over(DEFAULTS, settings), [SageMakerOptions, TrainConfig])
    job = Job(cast(TrainConfig, train), cast(SageMakerOptions, where))
    return prepare(job, _world(job.where.region))


def launch(plan: "Plan") -> "TrainingJob":
    """Starts the job of `plan` and returns at once.  Raises TrainerError where the plan has problems or AWS refuses."""
    from launch.sagemaker.planner import inner
    from launch.sagemaker.start import begin

    if plan.problems:
        raise plan.problems[0]
    world = _world(inner(plan).region)
    return TrainingJob(begin(plan, world), world)


def attach(name: str, region: str | None = None) -> "TrainingJob":
    """The job of that name, its last start.  Raises SettingsError if there is none."""
    from launch.sagemaker.training_jobs import newest

    world = _world(region)
    return TrainingJob(newest(world.aws, name, "attach", world.clock.utc()), world)


def jobs(region: str | None = None) -> list["TrainingJob"]:
    """The toolkit's jobs that cost money now, and those of the last day, newest first."""
    from launch.sagemaker.training_jobs import recent

    world = _world(region)
    return [TrainingJob(run, world) for run in recent(world.aws, world.clock.utc())]


def costs(region: str | None = None) -> str:
    """What jobs cost now, and which of them should not be there any more: `python -m launch.sagemaker leaks`."""
    from launch.sagemaker.leaks import NONE, as_text, judge
    from launch.sagemaker.training_jobs import costing

    world = _world(region)
    now = world.clock.utc()
    found = judge(costing(world.aws), now)
    return as_text(found, now) if found else NONE


@dataclass(repr=False)
class TrainingJob:
    """A job that was started.  Everything is asked of AWS anew; all methods may raise AwsError."""

    _run: "Run"
    _world: "World"

    def __repr__(self) -> str:
        """As it was when it was last asked for."""
        return f"<job {self.name}: {self._run.machines}, {self._run.detail or self._run.status}>"

    @property
    def name(self) -> str:
        return self._run.name

    @property
    def run(self) -> "Run":
        """As SageMaker describes it now: status, started, ended, trained_s, billed_s, ..."""
        from launch.sagemaker.runs import again

        self._run = again(self._world.aws, self._run)
        return self._run

    def follow(self, *, everything: bool = False, poll_s: float = 10.0) -> None:
        """Shows the job until it is over.  Raises Ended if the training failed.  Interrupting leaves it running.

        everything: the whole log and not only what the trainer says; poll_s: between looks.
        """
        from launch.sagemaker.start import follow
        from launch.sagemaker.watch import anything, is_headline

        shows = anything if everything else is_headline
        follow(self._run, self._world, fetch=False, shows=shows, poll_s=poll_s)

    def status(self) -> str:
        """All about the job, as `python -m launch.sagemaker status` has it."""
        from launch.sagemaker.status import as_text

        records = self.metrics()
        return as_text(self.run, records[-1] if records else None, self._world.clock.utc())

    def metrics(self) -> list[Mapping[str, Any]]:
        """One record an epoch; see trainer/README.md.  While the job runs they arrive with the checkpoints."""
        from launch.core.names import BUCKET_TAG, Folder
        from launch.core.progress import records

        return records(self._world.aws, Folder(self._run.tags[BUCKET_TAG], self._run.job))

    def cost(self) -> float:
        """USD so far; see Run.cost."""
        return self.run.cost(self._world.clock.utc())

    def result(self, folder: str | Path = "runs") -> Path:
        """Fetches the weights, metrics and picture into `folder`/NAME, and returns that."""
        from launch.sagemaker.result import fetch_result

        return fetch_result(self._world.aws, self.run, Path(folder))

    def stop(self) -> None:
        """Ends the job, and gives kept machines back.  Doing it twice is fine."""
        from launch.sagemaker.stop import end

        end(lambda _: self._world.aws, [self.run], self._world.clock, self._world.say)


def _world(region: str | None) -> "World":
    from functools import partial

    from launch.core.aws import Aws
    from launch.core.clock import Clock
    from launch.sagemaker.start import World

    # Interrupting a cell ends the looking, not the job.
    return World(Aws(region), Clock(), partial(print, flush=True), lambda: True, Path("runs"))
