"""Carries out a plan: starts the training job, follows it, fetches the result.  Read launch() first.

Unlike nodes on EC2, SageMaker's end by themselves with the training or its time limit.  So a launcher that cannot go
on, or whose terminal is closed, leaves the job running; Ctrl-C asks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.core.aws import Aws
from launch.core.clock import Clock, duration
from launch.core.errors import AwsError, Ended, NoAnswer
from launch.core.job import Job
from launch.core.names import JOB_TAG, STARTED_TAG, default_job_name
from launch.core.perform import Answer, Say, perform
from launch.core.plan import Plan
from launch.core.price import usd
from launch.core.signals import Hangup, hangups, hangups_ignored, unless_gone
from launch.sagemaker import sdk
from launch.sagemaker.checks import resolve
from launch.sagemaker.estimator import Estimator
from launch.sagemaker.failure import console, last_words, refused, verdict
from launch.sagemaker.lookup import look_up
from launch.sagemaker.options import SageMakerOptions
from launch.sagemaker.planner import Launch, inner
from launch.sagemaker.planner import plan as make_plan
from launch.sagemaker.result import fetch_result
from launch.sagemaker.runs import Run, again, find
from launch.sagemaker.stop import end
from launch.sagemaker.watch import POLL_S, Follower, anything
from trainer.contract import Exit
from trainer.errors import SettingsError, TrainerError

# How long AWS may be out of reach before it is left open whether a job was started.
SURE_S, LOOK_EVERY_S = 60.0, 3.0


@dataclass(frozen=True)
class World:
    """What a launch acts on, and how it talks.  may_detach: asks the user who pressed Ctrl-C; results: where to."""

    aws: Aws
    clock: Clock
    say: Say
    may_detach: Callable[[], bool]
    results: Path


def prepare(job: Job[SageMakerOptions], world: World) -> Plan:
    """Checks before any call, then looks everything up and plans.  Raises SettingsError."""
    resolved, now = resolve(job), world.clock.utc()
    name = job.where.job_name or default_job_name(job.train.dataset, job.train.model, now.astimezone())
    return make_plan(job, resolved, name, look_up(world.aws, resolved, name, now), sdk.capture)


def launch(plan: Plan, world: World) -> int:
    """Starts the job, follows it to its end and fetches the result; returns the exit code of the training.

    Raises Ended if the training failed, and TrainerError.
    """
    run, resolved = begin(plan, world), inner(plan).resolved
    if resolved.detaches:
        return _detached(run, world.say)
    return follow(run, world, fetch=resolved.options.fetch)


def begin(plan: Plan, world: World) -> Run:
    """Makes the requests of `plan`; returns the training job.  If it runs already, nothing is requested.

    Interrupted before the job is seen to start, it ends it.  Raises TrainerError.
    """
    todo = inner(plan)
    if todo.running is not None:
        world.say(f"{todo.running.name} is running already")
        return todo.running
    # Before anything can cost money: whatever happens, this is how to look after it.
    world.say(f"job {todo.folder.job}; from any terminal: {_command('status|logs|stop', todo.folder.job)}")

    def call(service: str, operation: str, params: Mapping[str, Any]) -> Answer:
        if operation != sdk.OPERATION:
            return world.aws.call(service, operation, params)
        _create(todo.estimator, params, world)
        return {}

    with hangups():
        try:
            perform(plan.steps, call, world.say, world.clock.sleep)
            run = _sought(todo.estimator, world, must_be=True)
        except (KeyboardInterrupt, Hangup) as asked:
            raise _undone(todo, world) from asked
    assert run is not None
    world.say(f"{run.name} is started: {console(run)}")
    return run


def _create(estimator: Estimator, request: Mapping[str, Any], world: World) -> None:
    """Starts the training job, once.  Raises AwsError."""
    try:
        sdk.send(estimator, request, world.aws)
    except AwsError as error:
        # An answer got lost, and botocore may have asked a second time.
        unclear = isinstance(error, NoAnswer) or error.aws_code == "ResourceInUse"
        run = _sought(estimator, world) if unclear else None
        if run is None:
            raise refused(error) from error
        if run.is_over:
            raise SettingsError(f"{run.name} was started from this plan before, and is over; plan again.") from error


def _sought(estimator: Estimator, world: World, *, must_be: bool = False) -> Run | None:
    """The training job, if it exists and is this one, not an earlier one of that name.  Raises AwsError if that cannot
    be found out.  must_be: AWS has said that it made it.
    """
    tags = {tag["Key"]: tag["Value"] for tag in estimator.arguments["tags"]}
    until = world.clock.now() + SURE_S
    while True:
        try:
            run = find(world.aws, estimator.name)
            if run is not None and run.token == tags[STARTED_TAG]:
                return run
            if not must_be:
                return None
            trouble: TrainerError = AwsError("SageMaker does not show it.")  # or not yet with its tags
        except TrainerError as error:
            trouble = error
        if world.clock.now() > until:
            stop_it = _command("stop", tags[JOB_TAG])
            raise AwsError(f"{trouble} So {estimator.name} may be running; end it with {stop_it}") from trouble
        world.clock.sleep(LOOK_EVERY_S)


def _undone(todo: Launch, world: World) -> Ended:
    """Ends the job if it was started; whether it was, we may not have been told.  Returns what to end with."""
    with hangups_ignored():
        try:
            run = _sought(todo.estimator, world)
        except KeyboardInterrupt:
            stop_it = _command("stop", todo.folder.job)
            world.say(f"{todo.estimator.name} may be running; make sure with {stop_it}")
            raise
        if run is None:
            return Ended("stopped before the job was started", 130)
        _stop(run, world)
    return Ended(f"{run.name} was started, and is stopped as asked", 130)


def _stop(run: Run, world: World) -> None:
    """Ends `run`; further signals but Ctrl-C are not heard meanwhile.  Raises AwsError."""
    try:
        with hangups_ignored():
            end(lambda _: world.aws, [run], world.clock, unless_gone(world.say))
    except KeyboardInterrupt:
        world.say(f"{run.name} may not have stopped yet; make sure with {_command('stop', run.job)}")
        raise


def follow(
    run: Run, world: World, *, fetch: bool, shows: Callable[[str], bool] = anything, poll_s: float = POLL_S
) -> int:
    """Shows the job until it is over, and fetches the result.  Raises Ended if the training failed.

    shows: whether a line of the log is shown; poll_s: between looks.
    """
    say, follower = unless_gone(world.say), Follower(world.aws, world.clock, world.say, run, shows, poll_s)
    attach = _command("attach", run.job)
    with hangups():
        try:
            run = follower.follow()
        except KeyboardInterrupt:
            if _may_detach(world):
                return _detached(run, say)
            _stop(run, world)
            raise Ended(f"stopped as asked{_cost(again(world.aws, run), world)}", 130) from None
        except (Hangup, BrokenPipeError) as error:
            raise Ended(f"nobody listens any more ({error}); the job goes on: {attach}", 130) from error
        except TrainerError as error:
            raise AwsError(f"{error} The job goes on: {attach}") from error
    return _ended(run, world, list(follower.lines), fetch=fetch)


def _may_detach(world: World) -> bool:
    """Asks; a terminal that is closed instead of an answer leaves the job alone."""
    try:
        return world.may_detach()
    except Hangup:
        return True


def _command(verb: str, job: str) -> str:
    return f"python -m launch.sagemaker {verb} {job}"


def _ended(run: Run, world: World, lines: list[str], *, fetch: bool) -> int:
    over, cost = verdict(run), _cost(run, world)
    if run.keep_s and run.pool in (None, "InUse", "Available"):  # also after a failure
        kept = f"the machines are kept up to {run.keep_s} s for a next job, and cost"
        world.say(f"{kept}; give them back with {_command('stop', run.job)}")
    if over.code != Exit.DONE:
        for line in _account_of(run, lines):
            world.say(line)
        see = f"See {_command('logs', run.job)}, and {console(run)}"
        raise Ended(f"{over.sentence}{cost}. {see}", over.code)
    world.say(f"{over.sentence}{cost}")
    if fetch:
        world.say(f"result: {fetch_result(world.aws, run, world.results)}")
    if run.checkpoints is not None:
        world.say(f"checkpoints: {run.checkpoints}")
    return Exit.DONE


def _account_of(run: Run, lines: list[str]) -> list[str]:
    """What is known of why `run` failed: SageMaker's reason, and the last lines of the rank that did."""
    told = [f"FailureReason: {' '.join(run.failure.split())}"] if run.failure else []
    words = last_words(lines) if lines and run.failure else []
    return [*told, *(["what the rank that failed said last:"] if words else []), *(f"  {word}" for word in words)]


def _cost(run: Run, world: World) -> str:
    """A clause: how long it was billed, what that costs, and what spot saved."""
    billed = run.billed(world.clock.utc())
    clause = f"; {duration(billed)} billed, about {usd(run.cost(world.clock.utc()))}"
    if run.saved is not None:
        clause += f" ({run.saved:.0%} saved by spot)"
    return clause


def _detached(run: Run, say: Say) -> int:
    say("the job goes on without this terminal, and ends by itself.")
    for verb, what in (("attach", "follow it, and fetch its result"), ("stop", "end it")):
        say(f"  {_command(verb, run.job)}   {what}")
    return Exit.DONE
