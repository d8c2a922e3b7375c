"""Stops training jobs, releases their warm pools, and waits until that is done.  Idempotent."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launch.aws.client import Aws
from launch.aws.retry import retrying
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.terminal import Say
from launch.sagemaker.names import command
from launch.sagemaker.outcome import outcome_of, record
from launch.sagemaker.training_job import RUNNING, TrainingJob
from launch.sagemaker.training_jobs import refreshed
from trainer.errors import TrainerError

# SageMaker leaves a container two minutes to end, and then uploads its results.
LIMIT_S, LOOK_EVERY_S = 1800.0, 5.0
# After the end of a job with a warm pool, the pool's status may be unknown for this long.
POOL_S = 60.0

Step = Callable[[TrainingJob], TrainingJob]


class Stopping:
    """Stops training jobs, collecting a sentence for each failed step."""

    def __init__(self, aws_of: Callable[[TrainingJob], Aws], clock: Clock, say: Say) -> None:
        self._aws_of, self._clock, self._say = aws_of, clock, say
        self.failures: list[str] = []

    def each(self, step: Step, training_jobs: Sequence[TrainingJob]) -> list[TrainingJob]:
        """Apply `step` to the training jobs; return the results of those where it succeeded."""
        results = list[TrainingJob]()
        for training_job in training_jobs:
            try:
                results.append(step(training_job))
            except TrainerError as error:
                self.failures.append(f"{training_job.start}: {error}")
        return results

    def ask(self, training_job: TrainingJob) -> TrainingJob:
        """Ask SageMaker to stop the training job."""
        if training_job.status != RUNNING:
            return training_job
        self._say(f"stopping {training_job.start}")
        aws = self._aws_of(training_job)
        # Also while it waits; Batch takes it for one that is over, too.
        if training_job.queued is not None and training_job.queued.id:
            asked = {"jobId": training_job.queued.id, "reason": "stopped as requested"}
            self._call(aws, "TerminateServiceJob", asked, "batch")
            return training_job
        try:
            self._call(aws, "StopTrainingJob", {"TrainingJobName": training_job.name})
        except AwsError as error:
            # It may have ended since it was looked up.
            if error.aws_code != "ValidationException" or self._refreshed(training_job).status == RUNNING:
                raise
        return training_job

    def wait(self, training_job: TrainingJob) -> TrainingJob:
        """Wait until the training job is over, record its outcome and return it."""
        aws, until = self._aws_of(training_job), self._clock.now() + LIMIT_S
        while not training_job.is_over:
            if self._clock.now() > until:
                raise AwsError(
                    f"it is still {training_job.status} ({training_job.detail}) after {LIMIT_S / 60:g} minutes; see "
                    f"{training_job.console}"
                )
            self._clock.sleep(LOOK_EVERY_S)
            training_job = self._refreshed(training_job)
        record(aws, training_job, outcome_of(training_job, self._clock.utc()), self._say)
        return training_job

    def wait_for_pool(self, training_job: TrainingJob) -> TrainingJob:
        """Wait until the status of the training job's warm pool is known, up to a limit, and return it."""
        until = self._clock.now() + POOL_S
        while training_job.pool in (None, "InUse") and self._clock.now() < until:
            self._clock.sleep(LOOK_EVERY_S)
            training_job = self._refreshed(training_job)
        return training_job

    def kept(self, training_jobs: Sequence[TrainingJob]) -> list[TrainingJob]:
        """Those of `training_jobs`, which are over, with instances in a warm pool."""
        waited = self.each(self.wait_for_pool, [one for one in training_jobs if one.keep_s])
        return [one for one in waited if one.pool == "Available"]

    def release(self, training_job: TrainingJob) -> TrainingJob:
        """Release the instances in the warm pool."""
        self._say(f"releasing the instances kept after {training_job.name}")
        aws = self._aws_of(training_job)
        params = {"TrainingJobName": training_job.name, "ResourceConfig": {"KeepAlivePeriodInSeconds": 0}}
        try:
            self._call(aws, "UpdateTrainingJob", params)
        except AwsError as error:
            if error.aws_code != "ValidationException" or self._refreshed(training_job).pool == "Available":
                raise
        return training_job

    def _call(self, aws: Aws, operation: str, params: Mapping[str, Any], service: str = "sagemaker") -> None:
        """Call AWS, retrying: the account shares rate limits, and a missed stop costs money."""
        retrying(lambda: aws.call(service, operation, params), self._clock, self._say)

    def _refreshed(self, training_job: TrainingJob) -> TrainingJob:
        return retrying(lambda: refreshed(self._aws_of(training_job), training_job), self._clock, self._say)

    def error(self, training_jobs: Sequence[TrainingJob]) -> AwsError:
        """The error with all failures and the commands to try again."""
        commands = dict.fromkeys(command("stop", one.job, one.region) for one in training_jobs)
        return AwsError("\n  ".join([f"{' '.join(self.failures)}  Try again:", *commands]), "StillThere")


def end(aws_of: Callable[[TrainingJob], Aws], training_jobs: Sequence[TrainingJob], clock: Clock, say: Say) -> int:
    """Stop all of `training_jobs` that cost money; return their number.  Raises AwsError if one remains.

    Requests all stops before waiting for any.  Training jobs that are not the toolkit's are left alone.
    """
    own = [one for one in training_jobs if one.is_start]
    alive = [one for one in own if not one.is_over]
    stopping = Stopping(aws_of, clock, say)
    ended = stopping.each(stopping.wait, stopping.each(stopping.ask, alive))
    over = [*ended, *(one for one in own if one.is_over)]
    released = stopping.each(stopping.release, stopping.kept(over))
    if stopping.failures:
        raise stopping.error(own)
    return len(alive) + len(released)
