"""Service environments, queues and service jobs as AWS Batch describes them, and the order of jobs in a queue.

Messages marked [?] are not known to be AWS's own.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from launch.rehearse.aws.batch.containers import Consumable, ContainerJob, Definition, Task
    from launch.rehearse.aws.sagemaker.jobs import TrainingJob

WAITING, ACTIVE, OVER = ("SUBMITTED", "RUNNABLE"), ("SCHEDULED", "STARTING", "RUNNING"), ("SUCCEEDED", "FAILED")
# https://docs.aws.amazon.com/batch/latest/userguide/service-job-status.html
STATUS_OF = {"Starting": "SCHEDULED", "Pending": "SCHEDULED", "Downloading": "STARTING"}
FROM_SAGEMAKER = "Received status from SageMaker: "
UNIT = "NUM_INSTANCES"


@dataclass
class Queue:
    """A job queue with its service environment, and a policy if it has shares."""

    name: str
    arn: str
    environment: str  # its ARN
    most: int  # instances at a time
    policy: str = ""  # ARN of its scheduling policy: fair share
    weights: Mapping[str, float] = field(default_factory=dict)
    state: str = "ENABLED"

    @property
    def described(self) -> dict[str, Any]:
        """https://docs.aws.amazon.com/batch/latest/APIReference/API_JobQueueDetail.html"""
        return {
            "jobQueueName": self.name,
            "jobQueueArn": self.arn,
            "state": self.state,
            "status": "VALID",
            "statusReason": "JobQueue Healthy",
            "priority": 1,
            "computeEnvironmentOrder": [],
            "serviceEnvironmentOrder": [{"order": 1, "serviceEnvironment": self.environment}],
            "jobQueueType": "SAGEMAKER_TRAINING",
            "jobStateTimeLimitActions": [],
            **({"schedulingPolicyArn": self.policy} if self.policy else {}),
        }

    @property
    def environment_described(self) -> dict[str, Any]:
        return {
            "serviceEnvironmentName": self.environment.rpartition("/")[2],
            "serviceEnvironmentArn": self.environment,
            "serviceEnvironmentType": "SAGEMAKER_TRAINING",
            "state": "ENABLED",
            "status": "VALID",
            "capacityLimits": [{"maxCapacity": self.most, "capacityUnit": UNIT}],
        }


@dataclass
class Attempt:
    """One training job of a service job; None if SageMaker refused the request."""

    training_job: TrainingJob | None
    at: datetime
    ended: datetime | None = None
    reason: str = ""
    started: datetime | None = None

    @property
    def described(self) -> dict[str, Any]:
        row: dict[str, Any] = {"statusReason": self.reason} if self.reason else {}
        if self.training_job is not None:
            row["serviceResourceId"] = {"name": "TrainingJobArn", "value": self.training_job.arn}
        times = {"startedAt": self.started, "stoppedAt": self.ended}
        return {**row, **{name: ms(time) for name, time in times.items() if time}}


@dataclass
class Job(ABC):
    """A job in a queue.  request: that which submitted it."""

    id: str
    arn: str
    queue: Queue
    request: Mapping[str, Any]
    created: datetime
    status: str = "SUBMITTED"
    reason: str = ""
    attempts: list[Any] = field(default_factory=list)
    used: int = 0  # attempts; of a service job without those that found no capacity
    is_terminated: bool = False
    stopped: datetime | None = None
    runnable_since: datetime | None = None

    @property
    @abstractmethod
    def count(self) -> float:
        """Its instances or vCPUs."""

    @property
    @abstractmethod
    def priority(self) -> int: ...

    @property
    @abstractmethod
    def retry_strategy(self) -> Mapping[str, Any]: ...

    @property
    @abstractmethod
    def conditions(self) -> Mapping[str, str]:
        """What the rules of a retry strategy look at: texts of the last attempt, by the rules' keys."""

    @property
    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """A row of ListJobs, or of ListServiceJobs."""

    @property
    def tags(self) -> list[dict[str, str]]:
        return [{"Key": key, "Value": value} for key, value in self.request.get("tags", {}).items()]

    @property
    def share(self) -> str:
        return str(self.request.get("shareIdentifier", ""))

    @property
    def last(self) -> Any:
        """The last attempt, or None."""
        return self.attempts[-1] if self.attempts else None

    @property
    def may_retry(self) -> bool:
        """Whether its strategy tries again after the last attempt.

        The first rule decides of which all conditions are met, and without one it is tried again; a job that was
        terminated or timed out is not: https://docs.aws.amazon.com/batch/latest/userguide/job_retries.html and
        https://docs.aws.amazon.com/batch/latest/userguide/service-job-retries.html
        """
        strategy = self.retry_strategy
        if self.is_terminated or self.last is None or self.used >= strategy.get("attempts", 1):
            return False
        for rule in strategy.get("evaluateOnExit", ()):
            if all(fnmatchcase(text, rule.get(name, "*")) for name, text in self.conditions.items()):
                return str(rule["action"]).upper() == "RETRY"
        return True


@dataclass
class ServiceJob(Job):
    """A service job, which starts training jobs."""

    attempts: list[Attempt] = field(default_factory=list)

    @property
    def payload(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.request["serviceRequestPayload"])
        return content

    @property
    def count(self) -> int:
        return int(self.payload.get("ResourceConfig", {}).get("InstanceCount", 1))

    @property
    def priority(self) -> int:
        return int(self.request.get("schedulingPriority", 0))

    @property
    def retry_strategy(self) -> Mapping[str, Any]:
        strategy: Mapping[str, Any] = self.request.get("retryStrategy", {})
        return strategy

    @property
    def conditions(self) -> Mapping[str, str]:
        return {"onStatusReason": self.last.reason}

    @property
    def summary(self) -> dict[str, Any]:
        latest = self.last.described.get("serviceResourceId") if self.last else None
        shown = {
            "jobArn": self.arn,
            "jobId": self.id,
            "jobName": self.request["jobName"],
            "serviceJobType": self.request["serviceJobType"],
            "shareIdentifier": self.share or None,
            "status": self.status,
            "statusReason": self.reason or None,
            "createdAt": ms(self.created),
            "startedAt": ms(self.last.started) if self.last and self.last.started else 0,
            "stoppedAt": ms(self.stopped) if self.stopped else None,
            "capacityUsage": [{"capacityUnit": UNIT, "quantity": self.count}],
            "latestAttempt": {"serviceResourceId": latest} if latest else None,
            "isTerminated": self.is_terminated,
        }
        return {key: value for key, value in shown.items() if value is not None}

    @property
    def described(self) -> dict[str, Any]:
        """https://docs.aws.amazon.com/batch/latest/APIReference/API_DescribeServiceJob.html"""
        same = ("retryStrategy", "schedulingPriority", "serviceRequestPayload", "tags", "timeoutConfig")
        return {
            **self.summary,
            **{key: self.request[key] for key in same if key in self.request},
            "jobQueue": self.queue.arn,
            "attempts": [attempt.described for attempt in self.attempts],
        }


def ms(time: datetime) -> int:
    """Milliseconds since the epoch."""
    return int(time.timestamp() * 1000)


@dataclass
class Batch:
    """All queues and jobs, in all regions."""

    queues: dict[str, Queue] = field(default_factory=dict)  # by ARN
    jobs: dict[str, Any] = field(default_factory=dict)  # service and container jobs, by id, oldest first
    tokens: dict[str, str] = field(default_factory=dict)  # client token -> id
    passes_tags_on: bool = False  # to the training jobs: AWS does not document whether it does
    definitions: dict[str, Definition] = field(default_factory=dict)  # by ARN, oldest first
    consumables: dict[str, Consumable] = field(default_factory=dict)  # by ARN
    start: Callable[[ContainerJob, str, str], Task] | None = None  # a container, with the id of its task and its stream
    kill_after_s: float = 30.0  # from SIGTERM to SIGKILL
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def in_region(self, region: str) -> list[Queue]:
        """The queues of a region."""
        return [queue for queue in self.queues.values() if queue.arn.split(":")[3] == region]

    def queue(self, name: str, region: str) -> Queue | None:
        """The queue with this name or ARN."""
        return next((one for one in self.in_region(region) if name in (one.name, one.arn)), None)

    def of(self, queue: Queue, *statuses: str) -> list[Any]:
        """Its jobs, oldest first.  statuses: only with one of these."""
        return [job for job in self.jobs.values() if job.queue is queue and (not statuses or job.status in statuses)]

    def in_use(self, queue: Queue, share: str | None = None) -> float:
        """Instances or vCPUs of its jobs that run."""
        return float(sum(job.count for job in self.of(queue, *ACTIVE) if share in (None, job.share)))

    def in_order(self, queue: Queue) -> Sequence[Any]:
        """The jobs that wait, in the order in which they will start.

        Without a policy first in, first out; with one the share that uses least comes first, and in a share the job
        of the highest priority: https://docs.aws.amazon.com/batch/latest/userguide/job_scheduling.html
        """
        waiting = self.of(queue, "RUNNABLE")
        return list(self._fair(queue, waiting)) if queue.policy else waiting

    def _fair(self, queue: Queue, waiting: list[Any]) -> Iterator[Any]:
        used = dict.fromkeys((job.share for job in waiting), 0.0)  # so far: in a rehearsal nothing is long ago
        for job in self.of(queue):
            used[job.share] = used.get(job.share, 0.0) + job.count * job.used
        places = {job.id: place for place, job in enumerate(waiting)}
        left = sorted(waiting, key=lambda job: (-job.priority, places[job.id]))
        while left:
            job = min(left, key=lambda one: used[one.share] * queue.weights.get(one.share, 1.0))
            left.remove(job)
            used[job.share] += job.count
            yield job
