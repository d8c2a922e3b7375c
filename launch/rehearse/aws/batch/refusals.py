"""What AWS Batch refuses, and its lists of jobs.  Words marked [?] are not known to be AWS's own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

from moto.batch.exceptions import ClientException
from moto.core.utils import get_service_model
from moto.sagemaker.exceptions import SagemakerClientError

from launch.rehearse.aws.batch.containers import ContainerJob
from launch.rehearse.aws.batch.jobs import Queue
from launch.rehearse.aws.batch.scheduler import step
from launch.rehearse.aws.sagemaker.refusals import check_shape

NAME = r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,127}"
SHARE = r"[a-zA-Z0-9]{1,255}\*?"
# MiB by vCPUs: https://docs.aws.amazon.com/batch/latest/APIReference/API_ResourceRequirement.html
MEMORY: Mapping[str, Sequence[int]] = {
    "0.25": (512, 1024, 2048),
    "0.5": (1024, 2048, 3072, 4096),
    "1": range(2048, 8193, 1024),
    "2": range(4096, 16385, 1024),
    "4": range(8192, 30721, 1024),
    "8": range(16384, 61441, 4096),
    "16": range(32768, 122881, 8192),
}
# Of a container on Fargate "this parameter isn't applicable ... don't specify it".
NOT_ON_FARGATE = ("vcpus", "memory", "ulimits", "instanceType")


def check_request(operation: str, request: Mapping[str, Any]) -> None:
    """Raises ClientException for a value that AWS's model or its pages refuse: callers check names and types."""
    shape = get_service_model("batch").operation_model(operation).input_shape
    try:
        check_shape(shape, request, "")
    except SagemakerClientError as error:
        raise ClientException(error.message) from error
    priorities = [request.get(key, 0) for key in ("schedulingPriority", "schedulingPriorityOverride")]
    refuse({
        "jobName": not re.fullmatch(NAME, request.get("jobName", "x")),
        "attemptDurationSeconds": any(
            request.get(key, {}).get("attemptDurationSeconds", 60) < 60 for key in ("timeout", "timeoutConfig")
        ),
        "schedulingPriority": not all(0 <= priority <= 9999 for priority in priorities),
        "shareIdentifier": not re.fullmatch(SHARE, request.get("shareIdentifier", "x")),
        "reason": len(request.get("reason", "")) > 1024,
    })  # fmt: skip
    strategy = request.get("retryStrategy", {})
    rules = strategy.get("evaluateOnExit", ())
    refuse({
        "attempts": not 1 <= strategy.get("attempts", 0 if rules else 1) <= 10,
        # The patterns of service jobs may have asterisks anywhere.
        "evaluateOnExit": len(rules) > 5 or (operation == "SubmitJob" and not all(map(_is_rule, rules))),
    })  # fmt: skip


def _is_rule(rule: Mapping[str, str]) -> bool:
    """https://docs.aws.amazon.com/batch/latest/APIReference/API_EvaluateOnExit.html"""
    forms = {"onExitCode": r"[0-9]*\*?", "onReason": r"[\w.:\s]*\*?", "onStatusReason": r"[\w.:\s]*\*?"}
    is_known = rule["action"].upper() in ("RETRY", "EXIT")
    return is_known and all(re.fullmatch(form, rule.get(key, "")) for key, form in forms.items())


def refuse(wrong: Mapping[str, bool]) -> None:
    if found := [name for name, is_wrong in wrong.items() if is_wrong]:
        raise ClientException(f"Error executing request, Exception : Invalid {found[0]}")  # [?]


def check_size(rows: Sequence[Mapping[str, str]]) -> None:
    """vCPUs and memory must be one of Fargate's pairs."""
    sizes = {row["type"]: row["value"] for row in rows}
    memory = sizes.get("MEMORY", "")
    if not memory.isdigit() or int(memory) not in MEMORY.get(sizes.get("VCPU", ""), ()) or "GPU" in sizes:
        raise ClientException(f"Error executing request, Exception : Fargate resource requirements {sizes}")  # [?]


def check_job(job: ContainerJob, resources: Set[str]) -> None:
    """resources: the consumable resources that there are."""
    queue, overrides = job.queue, job.request.get("containerOverrides", {})
    if queue.state != "ENABLED":
        raise ClientException(f"Job queue {queue.name} is not enabled.")  # [?]
    if bool(queue.policy) != ("shareIdentifier" in job.request):
        must = "must be specified for a fair-share" if queue.policy else "can't be specified for a FIFO"
        raise ClientException(f"shareIdentifier {must} job queue")
    if unknown := job.consumes.keys() - resources:
        raise ClientException(f"Consumable resource {sorted(unknown)[0]} does not exist.")  # [?]
    variables = [row["name"] for row in overrides.get("environment", ())]
    refuse({
        "containerOverrides": bool({*NOT_ON_FARGATE} & overrides.keys()),
        "command": "" in overrides.get("command", ()),
        "environment": any(name.startswith("AWS_BATCH") for name in variables),
        "arrayProperties": bool({"arrayProperties", "nodeOverrides", "dependsOn"} & job.request.keys()),  # not ours
        "consumableResource": any(count < 0 for count in job.consumes.values()),
    })  # fmt: skip
    check_size(job.container["resourceRequirements"])


# ---- lists


def selected(rows: list[dict[str, Any]], filters: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """The rows that pass a list's filter."""
    if not filters:
        return rows
    if len(filters) > 1:
        raise ClientException("Only one filter can be used at a time.")  # [?]
    name, values = filters[0]["name"], filters[0]["values"]
    keys = {"JOB_NAME": "jobName", "SHARE_IDENTIFIER": "shareIdentifier", "JOB_DEFINITION": "jobDefinition",
            "AFTER_CREATED_AT": "createdAt", "BEFORE_CREATED_AT": "createdAt"}  # fmt: skip
    if name not in keys:
        raise ClientException(f"Unknown filter {name}")  # [?]
    return [row for row in rows if any(_passes(name, row.get(keys[name], ""), value) for value in values)]


def _passes(name: str, given: Any, value: str) -> bool:
    if name.endswith("CREATED_AT"):
        return bool(given > float(value) if name.startswith("AFTER") else given < float(value))
    if name == "JOB_DEFINITION":
        return value in (given, given.rpartition(":")[0], given.rpartition("/")[2].partition(":")[0])
    if name == "SHARE_IDENTIFIER":
        return bool(given == value)
    text, pattern = given.lower(), value.lower()
    return bool(text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern)


def listed(rules: Any, queue: Queue, response: Any, size: int) -> dict[str, Any]:
    """One page, of at most `size` rows, of a queue's jobs, newest first.

    Without a filter they are only running ones by default; any filter but a share's finds those of any status.
    https://docs.aws.amazon.com/batch/latest/APIReference/API_ListJobs.html, and the same for ListServiceJobs
    """
    step(rules)
    ask = response._get_param
    filters, status = ask("filters"), ask("jobStatus")
    if not filters:
        status = status or "RUNNING"
    elif filters[0]["name"] not in ("SHARE_IDENTIFIER", "QUOTA_SHARE_NAME"):
        status = None
    found = selected([job.summary for job in rules.batch.of(queue)[::-1]], filters)
    rows = [row for row in found if status in (None, row["status"])]
    start = int(ask("nextToken") or 0)
    end = start + min(size, int(ask("maxResults") or size))
    return {"jobSummaryList": rows[start:end], **({"nextToken": str(end)} if end < len(rows) else {})}
