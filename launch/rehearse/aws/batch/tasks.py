"""The containers of jobs on Fargate: their start, their end, and whether Batch tries again."""

from __future__ import annotations

import secrets
import signal
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from launch.rehearse.aws.batch.containers import Attempt, ContainerJob

# https://docs.aws.amazon.com/AmazonECS/latest/developerguide/stopped-task-error-codes.html
EXITED = "Essential container in task exited"
LOST = "Task failed to start: ServiceUnavailableException"  # [?] what Batch makes of Fargate's own failures
TIMED_OUT = "Job attempt duration exceeded timeout"


@dataclass
class HeldTask:
    """A container without a process, which a test ends."""

    exit_code: int | None = None
    signals: list[int] = field(default_factory=list)

    def send(self, signum: int) -> None:
        self.signals.append(signum)
        if signum == signal.SIGKILL:
            self.exit_code = 128 + signum


def attempt(job: ContainerJob, rules: Any) -> None:
    """Starts its container."""
    name = secrets.token_hex(16)
    stream = f"{job.logs[1]}{name}"
    start = rules.batch.start
    task = start(job, name, stream) if start else HeldTask()
    job.used += 1
    job.status = "STARTING"
    job.attempts.append(Attempt(task, name, stream, rules.batch.now()))


def see(job: ContainerJob, rules: Any) -> None:
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


def _decide(job: ContainerJob, last: Attempt, now: datetime) -> None:
    """After an attempt."""
    if last.exit_code == 0 and not job.is_terminated:
        job.status, job.reason, job.stopped = "SUCCEEDED", EXITED, now
    elif job.may_retry:
        job.status, job.runnable_since = "RUNNABLE", now
    else:
        reason = job.reason if job.is_terminated else last.status_reason
        job.status, job.reason, job.stopped = "FAILED", reason, now


def _goes_on(job: ContainerJob, last: Attempt, rules: Any) -> None:
    job.status = "RUNNING"
    last.started = last.started or rules.batch.now()
    limit_s = (job.setting("timeout") or {}).get("attemptDurationSeconds")
    if limit_s and not job.is_terminated and rules.batch.now() > last.started + timedelta(seconds=limit_s):
        job.is_terminated, job.reason = True, TIMED_OUT
        stop(job, rules)


def stop(job: ContainerJob, rules: Any) -> None:
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
