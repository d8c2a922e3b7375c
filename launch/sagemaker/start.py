"""Carries out a plan: starts the training job, follows it, fetches the result.  Read launch() first.

Unlike nodes on EC2, SageMaker's end by themselves with the training or its time limit.  So a launcher that cannot go
on, or whose terminal is closed, leaves the job running; Ctrl-C asks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.aws import Aws
from launch.clock import Clock, duration
from launch.errors import AwsError, Ended, NoAnswer
from launch.job import Job
from launch.names import STARTED_TAG, default_job_name
from launch.perform import Answer, Say, perform
from launch.plan import Plan
from launch.price import usd
from launch.sagemaker import sdk
from launch.sagemaker.checks import settle
from launch.sagemaker.estimator import Estimator
from launch.sagemaker.failure import console, last_words, refused, verdict
from launch.sagemaker.lookup import look_up
from launch.sagemaker.options import SageMakerOptions
from launch.sagemaker.planner import Launch, inner
from launch.sagemaker.planner import plan as make_plan
from launch.sagemaker.result import fetch_result
from launch.sagemaker.runs import Run, describe
from launch.sagemaker.stop import end
from launch.sagemaker.watch import POLL_S, Follower, anything
from launch.signals import Hangup, hangups, undeterred
from trainer.contract import Exit


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
    settled, now = settle(job), world.clock.utc()
    name = job.where.job_name or default_job_name(job.train.dataset, job.train.model, now.astimezone())
    return make_plan(job, settled, name, look_up(world.aws, settled, name, now), sdk.capture)


def launch(plan: Plan, world: World) -> int:
    """Starts the job, follows it to its end and fetches the result; returns the exit code of the training.

    Raises Ended if the training failed, and TrainerError.
    """
    todo = inner(plan)
    with hangups():
        try:
            run = begin(plan, world)
        except (KeyboardInterrupt, Hangup) as asked:
            _undo(todo, world)
            raise Ended("stopped before the job was seen to start", 130) from asked
    if todo.settled.detaches:
        return _detached(run, world.say)
    return follow(run, world, fetch=todo.settled.options.fetch)


def begin(plan: Plan, world: World) -> Run:
    """Makes the requests of `plan`; returns the training job.  If it runs already, nothing is requested."""
    todo = inner(plan)
    if todo.running is not None:
        world.say(f"{todo.running.name} is running already")
        return describe(world.aws, todo.running.name)

    def call(service: str, operation: str, params: Mapping[str, Any]) -> Answer:
        if operation == sdk.OPERATION:
            _create(todo.estimator, params, world.aws)
            return {}
        return world.aws.call(service, operation, params)

    perform(plan.steps, call, world.say, world.clock.sleep)
    run = describe(world.aws, todo.estimator.name)
    world.say(f"job {run.job} is started; from any terminal: python -m launch.sagemaker status|logs|stop {run.job}")
    world.say(f"  {console(run)}")
    return run


def _create(estimator: Estimator, request: Mapping[str, Any], aws: Aws) -> None:
    """Starts the training job, once.  Raises AwsError."""
    try:
        sdk.send(estimator, request, aws)
    except AwsError as error:
        # An answer got lost, and botocore may have asked a second time.
        if (isinstance(error, NoAnswer) or error.aws_code == "ResourceInUse") and _is_there(estimator, aws):
            return
        raise refused(error) from error


def _is_there(estimator: Estimator, aws: Aws) -> bool:
    """Whether the training job exists, and is this one and not an earlier one of the same name."""
    started: str = {tag["Key"]: tag["Value"] for tag in estimator.arguments["tags"]}[STARTED_TAG]
    try:
        return describe(aws, estimator.name).token == started
    except AwsError:
        return False


def _undo(todo: Launch, world: World) -> None:
    """Ends the job if it was started; whether it was, we may not have been told."""
    if todo.running is None and _is_there(todo.estimator, world.aws):
        end(world.aws, describe(world.aws, todo.estimator.name), world.clock, undeterred(world.say))


def follow(
    run: Run, world: World, *, fetch: bool, shows: Callable[[str], bool] = anything, poll_s: float = POLL_S
) -> int:
    """Shows the job until it is over, and fetches the result.  Raises Ended if the training failed.

    shows: whether a line of the log is shown; poll_s: between looks.
    """
    say, follower = undeterred(world.say), Follower(world.aws, world.clock, world.say, run, shows, poll_s)
    with hangups():
        try:
            run = follower.follow()
        except KeyboardInterrupt:
            if world.may_detach():
                return _detached(run, say)
            end(world.aws, run, world.clock, say)
            raise Ended(f"stopped as asked{_cost(run, world)}", 130) from None
        except (Hangup, BrokenPipeError) as error:
            raise Ended(f"nobody listens any more ({error}); the job goes on", 130) from error
        except AwsError as error:
            raise AwsError(f"{error} The job goes on: python -m launch.sagemaker attach {run.job}") from error
    return _ended(run, world, list(follower.lines), fetch=fetch)


def _ended(run: Run, world: World, lines: list[str], *, fetch: bool) -> int:
    over, cost = verdict(run), _cost(run, world)
    if over.code != Exit.DONE:
        for line in _account_of(run, lines):
            world.say(line)
        see = f"See python -m launch.sagemaker logs {run.job}, and {console(run)}"
        raise Ended(f"{over.sentence}{cost}. {see}", over.code)
    world.say(f"{over.sentence}{cost}")
    if fetch:
        world.say(f"result: {fetch_result(world.aws, run, world.results)}")
    if run.checkpoints is not None:
        world.say(f"checkpoints: {run.checkpoints}")
    if run.pool == "Available":
        world.say(
            f"the machines are kept for the next job; give them back with python -m launch.sagemaker stop {run.job}"
        )
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
        say(f"  python -m launch.sagemaker {verb} {run.job}   {what}")
    return Exit.DONE
