"""What AWS Batch does by itself: starts what waits, sees what became of it, tries again."""

from __future__ import annotations

import secrets
import signal
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

from moto.sagemaker.exceptions import SagemakerClientError
from moto.sagemaker.models import sagemaker_backends

from launch.rehearse.aws.batch.containers import Attempt as ContainerAttempt
from launch.rehearse.aws.batch.containers import ContainerJob, held
from launch.rehearse.aws.batch.jobs import ACTIVE, FROM_SAGEMAKER, OVER, STATUS_OF, WAITING, Attempt, Queue, ServiceJob
from launch.rehearse.aws.sagemaker.changes import stopping
from launch.rehearse.aws.sagemaker.jobs import MESSAGES, TrainingJob

# A training job is called so, with 23 characters of the payload's name and an id of the attempt: the page's example is
# AWSBatchmy-training-job88b610a69aa8380ca5b0a7aba3f81cb8, and SageMaker takes 63 characters.
# https://docs.aws.amazon.com/batch/latest/userguide/service-job-events.html
PREFIX, OURS = "AWSBatch", 23
TIMED_OUT = "Job attempt duration exceeded timeout"  # [?]


def step(rules: Any) -> None:
    """Brings every job up to date, and starts those that have room."""
    with rules.lock:
        for job in list(rules.batch.jobs.values()):
            if job.status in ACTIVE:
                see = _see_container if isinstance(job, ContainerJob) else _see
                see(job, rules)
        for queue in list(rules.batch.queues.values()):
            _start(queue, rules)


def terminate(job: ServiceJob | ContainerJob, reason: str, rules: Any) -> None:
    """Ends a job that waits at once; stops the training job or the container of one that runs."""
    if job.status in OVER:
        return
    job.is_terminated, job.reason = True, reason
    if job.status in WAITING:
        _end(job, "FAILED", reason, rules)
    elif isinstance(job, ContainerJob):
        _stop_container(job, rules)
    else:
        running = job.last.training_job if job.last else None
        if running is not None and running.status == "InProgress":
            stopping(running)


def _see(job: ServiceJob, rules: Any) -> None:
    """What became of the last attempt."""
    attempt = job.last
    assert attempt is not None
    training_job = attempt.training_job
    if training_job is None:
        _ended(job, attempt, rules)
        return
    if not training_job.has_ended:
        job.status = STATUS_OF.get(training_job.secondary, "RUNNING")
        attempt.started = attempt.started or training_job.described.get("TrainingStartTime")
        limit = job.request.get("timeoutConfig", {}).get("attemptDurationSeconds")
        if limit and (rules.batch.now() - attempt.at).total_seconds() > limit:
            terminate(job, TIMED_OUT, rules)
        return
    attempt.started = attempt.started or training_job.described.get("TrainingStartTime")
    failure = training_job.described.get("FailureReason")
    attempt.reason = f"{FROM_SAGEMAKER}{failure or MESSAGES.get(training_job.secondary, training_job.secondary)}"
    if training_job.status == "Completed":
        attempt.ended = rules.batch.now()
        _end(job, "SUCCEEDED", attempt.reason, rules)
    else:
        _ended(job, attempt, rules)


def _ended(job: ServiceJob, attempt: Attempt, rules: Any) -> None:
    """After an attempt that failed.  Without capacity it is repeated, and does not count."""
    attempt.ended = attempt.ended or rules.batch.now()
    has_no_capacity = "CapacityError" in attempt.reason and not job.is_terminated
    if has_no_capacity:
        job.used -= 1
    if has_no_capacity or job.may_retry:
        job.status, job.runnable_since = "RUNNABLE", rules.batch.now()
    else:
        _end(job, "FAILED", job.reason if job.is_terminated else attempt.reason, rules)


def _end(job: ServiceJob | ContainerJob, status: str, reason: str, rules: Any) -> None:
    job.status, job.reason, job.stopped = status, reason, rules.batch.now()


def _start(queue: Queue, rules: Any) -> None:
    """Starts jobs from the front of the queue; the first that does not fit holds up those behind it."""
    batch = rules.batch
    for job in batch.of(queue, "SUBMITTED"):
        job.status, job.runnable_since = "RUNNABLE", rules.batch.now()
    while (waiting := batch.in_order(queue)) and _fits(waiting[0], rules):
        attempt = _attempt_container if isinstance(waiting[0], ContainerJob) else _attempt
        attempt(waiting[0], rules)


def _fits(job: Any, rules: Any) -> bool:
    """Whether a job's queue has room for it, and its consumable resources have."""
    batch, queue = rules.batch, job.queue
    if batch.in_use(queue) + job.count > queue.most:
        return False
    if not isinstance(job, ContainerJob):
        return True
    region, jobs = queue.arn.split(":")[3], list(batch.jobs.values())
    totals = {one.name: one.total for one in batch.consumables.values() if one.arn.split(":")[3] == region}
    return all(held(jobs, name, job) + count <= totals.get(name, 0) for name, count in job.consumes.items())


def _attempt(job: ServiceJob, rules: Any) -> None:
    """Makes the training job, by Batch's own service role."""
    from launch.rehearse.aws.sagemaker.moto_patches import new_job  # which imports Batch's operations

    if "CapacityError" in (job.last.reason if job.last else ""):
        job.attempts.pop()  # AWS deletes such a training job, too
    payload = job.payload
    payload["TrainingJobName"] = f"{PREFIX}{payload.get('TrainingJobName', '')[:OURS]}{uuid.uuid4().hex}"
    if rules.batch.passes_tags_on:
        payload["Tags"] = job.tags
    job.used += 1
    job.status = "SCHEDULED"
    try:
        made: TrainingJob | None = new_job(rules, payload, _place(job))
        attempt = Attempt(made, rules.batch.now())
    except SagemakerClientError as error:
        reason = f"{FROM_SAGEMAKER}{error.code}: {error.message}"
        attempt = Attempt(None, rules.batch.now(), ended=rules.batch.now(), reason=reason)
    job.attempts.append(attempt)
    if attempt.training_job is None:
        _ended(job, attempt, rules)


def _place(job: ServiceJob) -> Any:
    """The account and region, as moto's answers have them."""
    _, _, _, region, account, *_ = job.arn.split(":")
    backend = sagemaker_backends[account][region]
    return SimpleNamespace(region=region, current_account=account, sagemaker_backend=backend)


# ---- containers on Fargate


# https://docs.aws.amazon.com/AmazonECS/latest/developerguide/stopped-task-error-codes.html
EXITED = "Essential container in task exited"
LOST = "Task failed to start: ServiceUnavailableException"  # [?] what Batch makes of Fargate's own failures


@dataclass
class HeldTask:
    """A container without a process, which a test ends."""

    exit_code: int | None = None
    signals: list[int] = field(default_factory=list)

    def send(self, signum: int) -> None:
        self.signals.append(signum)
        if signum == signal.SIGKILL:
            self.exit_code = 128 + signum


def _attempt_container(job: ContainerJob, rules: Any) -> None:
    """Starts its container."""
    name = secrets.token_hex(16)
    stream = f"{job.logs[1]}{name}"
    start = rules.batch.start
    task = start(job, name, stream) if start else HeldTask()
    job.used += 1
    job.status = "STARTING"
    job.attempts.append(ContainerAttempt(task, name, stream, rules.batch.now()))


def _see_container(job: ContainerJob, rules: Any) -> None:
    """What became of its last container."""
    last, now = job.last, rules.batch.now()
    assert last is not None
    if last.kill_at is not None and last.task.exit_code is None and now >= last.kill_at:
        last.task.send(signal.SIGKILL)
    last.exit_code = last.task.exit_code
    if last.exit_code is None:
        _goes_on(job, last, rules)
        return
    last.ended, last.status_reason = now, EXITED
    if last.is_lost:
        last.exit_code, last.status_reason = None, LOST
    _decide(job, last, now)


def _decide(job: ContainerJob, last: ContainerAttempt, now: datetime) -> None:
    """After an attempt."""
    if last.exit_code == 0 and not job.is_terminated:
        job.status, job.reason, job.stopped = "SUCCEEDED", EXITED, now
    elif job.may_retry:
        job.status, job.runnable_since = "RUNNABLE", now
    else:
        reason = job.reason if job.is_terminated else last.status_reason
        job.status, job.reason, job.stopped = "FAILED", reason, now


def _goes_on(job: ContainerJob, last: ContainerAttempt, rules: Any) -> None:
    job.status = "RUNNING"
    last.started = last.started or rules.batch.now()
    limit_s = (job.setting("timeout") or {}).get("attemptDurationSeconds")
    if limit_s and not job.is_terminated and rules.batch.now() > last.started + timedelta(seconds=limit_s):
        job.is_terminated, job.reason = True, TIMED_OUT
        _stop_container(job, rules)


def _stop_container(job: ContainerJob, rules: Any) -> None:
    """SIGTERM now, and SIGKILL if the container still runs after 30 s.

    https://docs.aws.amazon.com/batch/latest/userguide/job_timeouts.html
    """
    last = job.last
    if last is not None and last.kill_at is None:
        last.kill_at = rules.batch.now() + timedelta(seconds=rules.batch.kill_after_s)
        last.task.send(signal.SIGTERM)


def lose(job: ContainerJob) -> None:
    """Its machine fails: the container has no exit code."""
    if job.last is not None and job.last.ended is None:
        job.last.is_lost = True
        job.last.task.send(signal.SIGKILL)
