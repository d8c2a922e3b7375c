"""Performs a plan: starts the training job and follows it.  Start reading at launch().

A training job ends by itself with the training or at its time limit.  So if the launcher fails or its terminal is
closed, the job keeps running; Ctrl-C asks.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from launch.aws.client import Aws
from launch.aws.lookup import SET_UP, earlier_jobs, is_sent
from launch.aws.names import STARTED_TAG
from launch.aws.refusals import increase_by_name
from launch.aws.upload import FOLDER
from launch.core.errors import AwsError, Ended, LeftRunning, NoAnswer
from launch.core.job import Job, job_name
from launch.core.perform import Answer, perform
from launch.core.signals import Hangup, hangups, hangups_ignored, unless_gone
from launch.sagemaker import sdk
from launch.sagemaker.channels import located
from launch.sagemaker.checks import resolve
from launch.sagemaker.follow import detached, follow, stop
from launch.sagemaker.lookup import look_up, stack_without_sources
from launch.sagemaker.names import command, job_of
from launch.sagemaker.options import SageMakerOptions, Through
from launch.sagemaker.planner import Launch, SageMakerPlan
from launch.sagemaker.planner import plan as make_plan
from launch.sagemaker.request import OPERATION, SUBMIT
from launch.sagemaker.runtime import Runtime
from launch.sagemaker.training_job import TrainingJob
from launch.sagemaker.training_jobs import find, queues, running_names
from trainer.contract import STOPPED, Exit
from trainer.errors import SettingsError, TrainerError
from trainer.outcome import Outcome

# Batch's code for every request that it refuses, a repeated one among them.
BATCH_REFUSED = "ClientException"
# Retry for this long to find out whether a job was started.
SURE_S, LOOK_EVERY_S = 60.0, 3.0
# After a request without an answer, the job may still appear for this long.
SETTLE_S = 20.0


def prepare(job: Job[SageMakerOptions], runtime: Runtime) -> SageMakerPlan:
    """Check the settings of `job`, make all look-ups and return the plan.  Raises SettingsError, before any call."""
    resolved, now = resolve(job), runtime.clock.utc()
    name = job_name(job, now.astimezone(), partial(_running, runtime.aws, now))
    facts = look_up(runtime.aws, resolved, name, now, runtime.prices_file, job.train.data_url)
    resolved = resolve(job, facts.types) if facts.types else resolved
    if facts.account is not None:
        resolved = replace(resolved, channels=located(resolved.channels, facts.account, facts.region))
    if facts.bucket is not None and not facts.problems:
        facts = replace(
            facts,
            earlier=earlier_jobs(runtime.aws, facts.bucket, job.train, name),
            is_sent=is_sent(runtime.aws, facts.bucket, job.train, now),
            old_stack=stack_without_sources(runtime.aws, facts, job.where) if job.train.source else "",
        )
    through = job.where.through or _default_way(job.where)
    if through == "estimator" and not sdk.is_installed():
        facts = replace(facts, problems=(*facts.problems, sdk.missing()))
    return make_plan(job, resolved, name, facts, through)


def _running(aws: Aws, now: datetime) -> list[str]:
    """The jobs that run; none if SageMaker does not answer, which is among the problems of the plan."""
    try:
        return [job_of(name) for name in running_names(aws, now)]
    except TrainerError:
        return []


def _default_way(options: SageMakerOptions) -> Through:
    return "estimator" if sdk.is_installed() and not options.beyond_sdk_2 else "boto3"


def launch(plan: SageMakerPlan, runtime: Runtime) -> Outcome | None:
    """Start the job, follow it to its end and fetch the result; return its outcome, or None if it still runs.

    Raises Ended if the training failed, and TrainerError.
    """
    training_job, resolved = begin(plan, runtime), plan.payload.resolved
    if resolved.detaches:
        detached(training_job, runtime.say)
        return None
    return follow(training_job, runtime, fetch=resolved.options.fetch)


def begin(plan: SageMakerPlan, runtime: Runtime) -> TrainingJob:
    """Make the requests of `plan`; return the training job.  Makes none if it is already running.

    If interrupted before the start is confirmed, stops the job.  Raises TrainerError.
    """
    todo = plan.payload
    if todo.running is not None:
        runtime.say(f"{todo.running.start} is already {'in the queue' if todo.running.waits else 'running'}")
        return todo.running
    if todo.queue is not None:
        _check_payload(plan.steps[-1].params, runtime.aws)  # type: ignore[union-attr]
    # Shown before anything costs money, so that the user can find and stop the job in any case.
    runtime.say(f"job {todo.folder.job}; from any terminal:")
    for verb in ("status", "logs", "stop"):
        runtime.say(f"  {command(verb, todo.folder.job, todo.region)}")

    asked: list[str] = []

    def call(service: str, operation: str, params: Mapping[str, Any]) -> Answer:
        if operation not in (OPERATION, SUBMIT):
            return runtime.aws.call(service, operation, params)
        asked.append(operation)
        _create(todo, params, runtime)
        return {}

    with hangups():
        try:
            perform(plan.steps, call, runtime.say, runtime.clock.sleep)
            training_job = _started(todo, runtime, accepted=True)
        except (KeyboardInterrupt, Hangup) as interruption:
            raise _undo(todo, runtime, unsure=bool(asked)) from interruption
    assert training_job is not None
    if training_job.queued is not None and training_job.waits:
        runtime.say(f"{training_job.start} {training_job.queued.in_words}")
    else:
        runtime.say(f"{training_job.start} is started: {training_job.console}")
    return training_job


def _check_payload(request: Mapping[str, Any], aws: Aws) -> None:
    """Raise SettingsError if SageMaker would refuse the payload, which Batch passes on unread."""
    wrong = aws.violation("sagemaker", OPERATION, json.loads(request["serviceRequestPayload"]))
    if wrong:
        raise SettingsError(f"SageMaker would refuse the job when its turn comes: {wrong}")


def _create(todo: Launch, request: Mapping[str, Any], runtime: Runtime) -> None:
    """Start the training job once.  Raises AwsError."""
    try:
        if todo.queue is not None:
            runtime.aws.call("batch", SUBMIT, request)
        elif todo.through == "estimator":
            sdk.send(todo.description, request, runtime.aws)
        else:
            runtime.aws.call("sagemaker", OPERATION, request)
    except AwsError as error:
        # An answer was lost, and botocore may have retried the request.
        is_unclear = isinstance(error, NoAnswer) or error.aws_code in ("ResourceInUse", BATCH_REFUSED)
        training_job = _started(todo, runtime, unsure=error.aws_code != BATCH_REFUSED) if is_unclear else None
        if training_job is None:
            raise with_remedy(error, todo.region) from error
        if training_job.is_over:
            raise SettingsError(
                f"{training_job.start} was already started from this plan, and has ended; create a new plan."
            ) from error


def _started(todo: Launch, runtime: Runtime, *, accepted: bool = False, unsure: bool = False) -> TrainingJob | None:
    """The training job of this plan, or None if it was not started.  Raises LeftRunning if that cannot be determined.

    accepted: SageMaker has confirmed the request, so wait for the job; unsure: a request may be unanswered, so look
    again a little later.
    """
    began = runtime.clock.now()
    until, sure_at = began + SURE_S, began + (SETTLE_S if unsure else 0.0)
    while True:
        try:
            training_job = _find(todo, runtime)
            if training_job is not None or not (accepted or runtime.clock.now() < sure_at):
                return training_job
            trouble: TrainerError = AwsError("SageMaker does not show it.")  # or its tags are not visible yet
        except TrainerError as error:
            trouble = error
        if runtime.clock.now() > until:
            stop_it = command("stop", todo.folder.job, todo.region)
            words = f"{trouble}  {todo.description.name} may be running; make sure that it ends:\n  {stop_it}"
            raise LeftRunning(words, Exit.AWS) from trouble
        runtime.clock.sleep(LOOK_EVERY_S)


def _find(todo: Launch, runtime: Runtime) -> TrainingJob | None:
    """The training job if this plan has started it, else None.  Raises AwsError.

    In a queue, a start of this name is what the same command has put there, at whatever time.
    """
    description = todo.description
    if todo.queue is not None:
        rows = queues(runtime.aws).starts_of(description.name)
        ids = [row["jobId"] for row in rows if row["jobName"] == description.name]
        return queues(runtime.aws).read(ids[0]) if ids else None
    found = find(runtime.aws, description.name)
    return found if found is not None and found.token == description.tags.get(STARTED_TAG) else None


def _undo(todo: Launch, runtime: Runtime, *, unsure: bool) -> Ended:
    """Stop the job if it was started; return the error to raise.  unsure: see _started()."""
    stop_it = command("stop", todo.folder.job, todo.region)
    with hangups_ignored():
        try:
            if unsure:
                unless_gone(runtime.say)("making sure that no job starts")
            training_job = _started(todo, runtime, unsure=unsure)
        except KeyboardInterrupt:
            runtime.say(f"{todo.description.name} may be running; make sure that it ends:\n  {stop_it}")
            raise
        if training_job is None:
            return Ended("stopped before the job was started", STOPPED)
        stop(training_job, runtime)
    return Ended(f"{training_job.start} was started, and is stopped as requested", STOPPED)


# Pattern of AWS's message -> explanation with a remedy.
_REFUSALS = {
    r"Could not assume role (?P<name>\S+?)\.? ": "SageMaker cannot assume role {name}: its trust policy must name "
    "sagemaker.amazonaws.com (infra/iam/sagemaker-trust.json), and a new role takes a minute; or give another --role.",
    r"service limit '(?P<name>Longest run[^']+)' is (?P<limit>\d+)": "the account's quota {name!r} is {limit} seconds; "
    "lower --max-hours, or ask for more with\n  {increase}",
    r"service limit '(?P<name>[^']*instances [^']+)' is (?P<limit>\d+)": "the account's quota {name!r} is {limit}, for "
    "all instance types together; give fewer --nodes, or ask for more with\n  {increase}",
    r"service limit '(?P<name>[^']+)' is (?P<limit>\d+)": "the account's quota {name!r} is {limit}; give fewer --nodes "
    "or another --instance-type, or ask for more with\n  {increase}",
    r"Cannot find (the requested image|repository): ?(?P<name>\S*)": "SageMaker finds no image {name}; push it: "
    "python -m launch.image push --target sagemaker, or check --image.",
    r"Access denied for repository: (?P<name>\S+)": "the job's role may not pull {name}: infra/iam/sagemaker.json "
    "allows the toolkit's own repository and AWS's PyTorch images; add it there, or give another --image.",
    # The source was just uploaded: AWS gives this message also if the role may not list it.
    rf"No S3 objects found under S3 URL \"(?P<name>s3://[^/\"]+/{FOLDER}/\d[^\"]+)\"": "the job's role may "
    "not list {name}, which has the script's source: the account's stack may be older than this version; update it "
    f"with {SET_UP}, or let a role of your own list and read {FOLDER}/ there.",
    r"No S3 objects found under S3 URL \"(?P<name>[^\"]+)\"": "there is nothing under {name}; check --data.",
    r"(?P<name>ml\.\S+) .*not (supported|available)": "{name} is not available in this region; give another "
    "--instance-type or --region.",
}


# The end of AWS's message about a quota, as in github.com/zenml-io/zenml/issues/847.
_AMOUNTS = re.compile(r"current utilization of (?P<used>\d+)\D.* request delta of (?P<needed>\d+)")


def with_remedy(error: AwsError, region: str) -> AwsError:
    """`error` of CreateTrainingJob, with a remedy if one is known."""
    for pattern, remedy in _REFUSALS.items():
        match = re.search(pattern, str(error))
        if match is not None:
            words = match.groupdict()
            if "limit" in words:
                words["increase"] = _increase(match, region)
            return type(error)(remedy.format(**words), error.aws_code, error.operation)
    return error


def _increase(refusal: re.Match[str], region: str) -> str:
    """The command that asks for as much of the quota as AWS says that the job needs."""
    amounts = _AMOUNTS.search(refusal.string)
    needed = int(amounts["used"]) + int(amounts["needed"]) if amounts else int(refusal["limit"]) + 1
    return increase_by_name("sagemaker", refusal["name"], needed, region)
