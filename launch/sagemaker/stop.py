"""Ends the training jobs of a job, gives its machines back, and makes sure of it.  Idempotent."""

from launch.aws import Aws
from launch.clock import Clock
from launch.errors import AwsError
from launch.perform import Say
from launch.sagemaker.runs import RUNNING, Run, again, describe, runs_of

# SageMaker gives a container two minutes to end, and uploads what it has.
LIMIT_S, LOOK_EVERY_S = 1800.0, 5.0


def stop(aws: Aws, job: str, clock: Clock, say: Say) -> int:
    """Ends everything of `job` that costs money; returns how many things that were.  Raises AwsError if one stays."""
    return sum(end(aws, describe(aws, seen.name), clock, say) for seen in runs_of(aws, job))


def end(aws: Aws, run: Run, clock: Clock, say: Say) -> int:
    """stop() for one training job.  One that is not the toolkit's is left alone."""
    if not run.is_ours:
        return 0
    ended = 0
    if not run.is_over:
        ended, run = 1, _end_training(aws, run, clock, say)
    return ended + release(aws, run, say)


def _end_training(aws: Aws, run: Run, clock: Clock, say: Say) -> Run:
    if run.status == RUNNING:
        say(f"stopping {run.name}")
        try:
            aws.call("sagemaker", "StopTrainingJob", {"TrainingJobName": run.name})
        except AwsError as error:
            if error.aws_code != "ValidationException":  # it has ended meanwhile
                raise
    until = clock.now() + LIMIT_S
    while not run.is_over:
        if clock.now() > until:
            raise AwsError(
                f"{run.name} does not stop: it is {run.status} ({run.detail}) after {LIMIT_S / 60:g} minutes; "
                f"look at it in the console, in {run.region}.",
                "StillThere",
            )
        clock.sleep(LOOK_EVERY_S)
        run = again(aws, run)
    return run


def release(aws: Aws, run: Run, say: Say) -> int:
    """Gives back the machines that are kept for the next job; returns how many pools that were."""
    if run.pool != "Available":
        return 0
    say(f"giving back the machines kept after {run.name}")
    resources = {"KeepAlivePeriodInSeconds": 0}
    try:
        aws.call("sagemaker", "UpdateTrainingJob", {"TrainingJobName": run.name, "ResourceConfig": resources})
    except AwsError as error:
        if error.aws_code != "ValidationException" or again(aws, run).pool == "Available":
            raise
    return 1
