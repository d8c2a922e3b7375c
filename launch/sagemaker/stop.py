"""Ends training jobs, gives their machines back, and makes sure of it.  Idempotent."""

from collections.abc import Callable, Sequence

from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.perform import Say
from launch.sagemaker.runs import RUNNING, Run, again
from trainer.errors import TrainerError

# SageMaker gives a container two minutes to end, and uploads what it has.
LIMIT_S, LOOK_EVERY_S = 1800.0, 5.0
# How long a job that keeps its machines may take to say so, when it has ended.
POOL_S = 60.0


def end(aws_of: Callable[[Run], Aws], runs: Sequence[Run], clock: Clock, say: Say) -> int:
    """Ends all of `runs` that cost money; returns how many things that were.  Raises AwsError if one stays.

    All are asked to stop before any is waited for.  What is not the toolkit's is left alone.
    """
    runs = [run for run in runs if run.is_ours]
    living = [run for run in runs if not run.is_over]
    failures = list[str]()

    def each(act: Callable[[Run], Run | None], among: Sequence[Run]) -> list[Run]:
        """What act() makes of each; failures are kept for the end."""
        made = []
        for run in among:
            try:
                made.append(act(run) or run)
            except TrainerError as error:
                failures.append(f"{run.name}: {error}")
        return made

    asked = each(lambda run: _ask(aws_of(run), run, say), living)
    over = each(lambda run: _wait(aws_of(run), run, clock), asked)
    keeping = [run for run in (*over, *(run for run in runs if run.is_over)) if run.keep_s]
    resolved = each(lambda run: _settled(aws_of(run), run, clock), keeping)
    pools = [run for run in resolved if run.pool == "Available"]
    each(lambda run: _release(aws_of(run), run, say), pools)
    if failures:
        names = ", ".join(dict.fromkeys(run.job for run in runs))
        raise AwsError(f"{' '.join(failures)} Once more: python -m launch.sagemaker stop {names}", "StillThere")
    return len(living) + len(pools)


def _ask(aws: Aws, run: Run, say: Say) -> None:
    if run.status != RUNNING:
        return
    say(f"stopping {run.name}")
    try:
        aws.call("sagemaker", "StopTrainingJob", {"TrainingJobName": run.name})
    except AwsError as error:
        # Perhaps it has ended meanwhile.
        if error.aws_code != "ValidationException" or again(aws, run).status == RUNNING:
            raise


def _wait(aws: Aws, run: Run, clock: Clock) -> Run:
    """`run` when it is over."""
    until = clock.now() + LIMIT_S
    while not run.is_over:
        if clock.now() > until:
            raise AwsError(f"it is {run.status} ({run.detail}) after {LIMIT_S / 60:g} minutes; look into the console.")
        clock.sleep(LOOK_EVERY_S)
        run = again(aws, run)
    return run


def _settled(aws: Aws, run: Run, clock: Clock) -> Run:
    """`run` when it says what has become of its machines; as it is where it never does."""
    until = clock.now() + POOL_S
    while run.pool in (None, "InUse") and clock.now() < until:
        clock.sleep(LOOK_EVERY_S)
        run = again(aws, run)
    return run


def _release(aws: Aws, run: Run, say: Say) -> None:
    say(f"giving back the machines kept after {run.name}")
    resources = {"KeepAlivePeriodInSeconds": 0}
    try:
        aws.call("sagemaker", "UpdateTrainingJob", {"TrainingJobName": run.name, "ResourceConfig": resources})
    except AwsError as error:
        if error.aws_code != "ValidationException" or again(aws, run).pool == "Available":
            raise
