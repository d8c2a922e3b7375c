"""Container jobs on Fargate as AWS Batch describes them: their queues, definitions, consumable resources, attempts.

Messages marked [?] are not known to be AWS's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

from launch.rehearse.aws.batch.jobs import Job, Queue, ms

FARGATE = "ECS_FARGATE"
DEFAULT_LOGS = "/aws/batch/job"


@dataclass
class FargateQueue(Queue):
    """A job queue with a compute environment.  most: vCPUs at a time."""

    @property
    def described(self) -> dict[str, Any]:
        places = [{"order": 1, "computeEnvironment": self.environment}]
        other = {"serviceEnvironmentOrder": [], "computeEnvironmentOrder": places, "jobQueueType": FARGATE}
        return {**super().described, **other}


@dataclass
class Definition:
    """A revision of a job definition.  request: RegisterJobDefinition's."""

    arn: str  # with its revision
    revision: int
    request: Mapping[str, Any]

    @property
    def described(self) -> dict[str, Any]:
        """https://docs.aws.amazon.com/batch/latest/APIReference/API_JobDefinition.html"""
        known = {"jobDefinitionArn": self.arn, "revision": self.revision, "status": "ACTIVE"}
        return {**self.request, **known, "containerOrchestrationType": "ECS"}


@dataclass
class Consumable:
    """A consumable resource."""

    arn: str
    total: int
    created: datetime

    @property
    def name(self) -> str:
        return self.arn.rpartition("/")[2]


class Task(Protocol):
    """The container of an attempt."""

    @property
    def exit_code(self) -> int | None:
        """None while it runs; 128 + the signal where one ended it."""

    def send(self, signum: int) -> None:
        """Sends it a signal."""


@dataclass
class Attempt:
    """One container of a job."""

    task: Task
    id: str  # of the ECS task
    stream: str  # of its log
    at: datetime
    started: datetime | None = None
    ended: datetime | None = None
    exit_code: int | None = None
    reason: str = ""  # of the container
    status_reason: str = ""
    kill_at: datetime | None = None  # when SIGKILL follows SIGTERM
    is_lost: bool = False  # with its host: it has no exit code

    def container(self, arn: str) -> dict[str, Any]:
        """arn: of a task in the account and region, up to its id."""
        shown = {"exitCode": self.exit_code, "reason": self.reason or None, "taskArn": arn + self.id}
        shown["logStreamName"] = self.stream if self.started else None
        return {key: value for key, value in shown.items() if value is not None}

    def described(self, arn: str) -> dict[str, Any]:
        """https://docs.aws.amazon.com/batch/latest/APIReference/API_AttemptDetail.html"""
        times = {"startedAt": self.started, "stoppedAt": self.ended}
        shown = {name: ms(time) for name, time in times.items() if time}
        return {"container": self.container(arn), "statusReason": self.status_reason, **shown}


@dataclass
class ContainerJob(Job):
    """A container job."""

    definition: Definition = field(kw_only=True)
    attempts: list[Attempt] = field(default_factory=list)

    @cached_property
    def container(self) -> Mapping[str, Any]:
        """The definition's properties with what the job overrides."""
        given = dict(self.definition.request["containerProperties"])
        overrides = self.request.get("containerOverrides", {})
        if "command" in overrides:
            given["command"] = overrides["command"]
        for key, name in (("environment", "name"), ("resourceRequirements", "type")):
            rows = {row[name]: row for row in (*given.get(key, ()), *overrides.get(key, ()))}
            given[key] = list(rows.values())
        return given

    def requirement(self, kind: str) -> float:
        """vCPUs, or MiB of memory."""
        return next(float(row["value"]) for row in self.container["resourceRequirements"] if row["type"] == kind)

    @property
    def count(self) -> float:
        return self.requirement("VCPU")

    @property
    def priority(self) -> int:
        return int(self.setting("schedulingPriority", "schedulingPriorityOverride") or 0)

    @property
    def consumes(self) -> Mapping[str, int]:
        """Quantities of consumable resources, by name."""
        asked = self.setting("consumableResourceProperties", "consumableResourcePropertiesOverride") or {}
        rows = asked.get("consumableResourceList", ())
        return {row["consumableResource"].rpartition("/")[2]: row.get("quantity", -1) for row in rows}

    @property
    def holds(self) -> bool:
        """Whether its consumable resources are locked: from the first attempt until the job has ended.

        https://docs.aws.amazon.com/batch/latest/userguide/resource-aware-scheduling-how-to-for-jobs.html
        """
        return self.used > 0 and self.status not in ("SUCCEEDED", "FAILED")

    def setting(self, key: str, override: str = "") -> Any:
        """What the job or else its definition says."""
        return self.request.get(override or key, self.definition.request.get(key))

    @property
    def retry_strategy(self) -> Mapping[str, Any]:
        return self.setting("retryStrategy") or {"attempts": 1, "evaluateOnExit": []}

    @property
    def conditions(self) -> Mapping[str, str]:
        last = self.last
        return {"onStatusReason": last.status_reason, "onReason": last.reason,
                "onExitCode": "" if last.exit_code is None else str(last.exit_code)}  # fmt: skip

    @property
    def logs(self) -> tuple[str, str]:
        """Its log group, and how its streams begin.

        https://docs.aws.amazon.com/batch/latest/userguide/using_cloudwatch_logs.html
        """
        options = self.container.get("logConfiguration", {}).get("options", {})
        name = options.get("awslogs-stream-prefix", self.definition.request["jobDefinitionName"])
        return options.get("awslogs-group", DEFAULT_LOGS), f"{name}/default/"

    @property
    def tasks_arn(self) -> str:
        """How the ARNs of its tasks begin."""
        _, _, _, region, account, *_ = self.arn.split(":")
        cluster = self.queue.environment.rpartition("/")[2]
        return f"arn:aws:ecs:{region}:{account}:task/{cluster}_Batch/"

    @property
    def _ended(self) -> dict[str, int]:
        """https://docs.aws.amazon.com/batch/latest/APIReference/API_ContainerSummary.html"""
        return {} if self.last is None or self.last.exit_code is None else {"exitCode": self.last.exit_code}

    @property
    def summary(self) -> dict[str, Any]:
        """https://docs.aws.amazon.com/batch/latest/APIReference/API_JobSummary.html"""
        shown = {
            "jobArn": self.arn,
            "jobId": self.id,
            "jobName": self.request["jobName"],
            "jobDefinition": self.definition.arn,
            "shareIdentifier": self.share or None,
            "status": self.status,
            "statusReason": self.reason or None,
            "createdAt": ms(self.created),
            "startedAt": self.last and self.last.started and ms(self.last.started),
            "stoppedAt": self.stopped and ms(self.stopped),
            "container": self._ended,
            "isTerminated": self.is_terminated or None,
        }
        return {key: value for key, value in shown.items() if value is not None}

    @property
    def described(self) -> dict[str, Any]:
        """https://docs.aws.amazon.com/batch/latest/APIReference/API_JobDetail.html"""
        own = self.last.container(self.tasks_arn) if self.last else {}
        rows = [{"consumableResource": name, "quantity": count} for name, count in self.consumes.items()]
        return {
            "startedAt": 0,
            **self.summary,
            "jobQueue": self.queue.arn,
            "attempts": [one.described(self.tasks_arn) for one in self.attempts if one.ended],
            "container": {**self.container, **own},
            "retryStrategy": self.retry_strategy,
            "schedulingPriority": self.priority,
            "dependsOn": [],
            "parameters": {},
            "tags": self.request.get("tags", {}),
            "platformCapabilities": ["FARGATE"],
            "propagateTags": bool(self.setting("propagateTags")),
            "isTerminated": self.is_terminated,
            "isCancelled": False,
            **({"timeout": self.setting("timeout")} if self.setting("timeout") else {}),
            **({"consumableResourceProperties": {"consumableResourceList": rows}} if rows else {}),
        }


def held(jobs: Sequence[Any], name: str, other_than: ContainerJob | None = None) -> int:
    """How much of a consumable resource jobs hold."""
    containers = [job for job in jobs if isinstance(job, ContainerJob) and job is not other_than]
    return sum(job.consumes.get(name, 0) for job in containers if job.holds)
