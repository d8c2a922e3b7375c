"""What moto lacks or has wrong of SageMaker, mended in moto's own classes: its server has it too.

Everything that can be set, such as quotas, is on rules.Rules.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any

from moto.core.responses import ActionResult, EmptyResult
from moto.sagemaker.exceptions import SagemakerClientError
from moto.sagemaker.responses import SageMakerResponse
from moto.servicequotas.exceptions import NoSuchResource
from moto.servicequotas.models import ServiceQuotasBackend
from moto.servicequotas.responses import ServiceQuotasResponse

from launch.rehearse.aws.moto_patches import changed
from launch.rehearse.aws.sagemaker.jobs import TrainingJob, cool, missing_data, reuse, stopped, stopping
from launch.rehearse.aws.sagemaker.refusals import check_limits, check_quota, check_role, check_shape, invalid
from launch.rehearse.aws.sagemaker.rules import Rules, alone, operation_input

PAGE = 10  # jobs in an answer, unless it is asked for more


@contextmanager
def mended(rules: Rules) -> Iterator[None]:
    """Meanwhile moto is as AWS would be under `rules`."""
    changes: list[tuple[type, str, Callable[..., Any]]] = [
        (SageMakerResponse, "create_training_job", _create),
        (SageMakerResponse, "describe_training_job", _describe),
        (SageMakerResponse, "stop_training_job", _stop),
        (SageMakerResponse, "update_training_job", _update),
        (SageMakerResponse, "list_training_jobs", _list),
        (ServiceQuotasResponse, "list_service_quotas", _list_service_quotas),
        (ServiceQuotasBackend, "get_service_quota", _get_service_quota),
    ]
    with ExitStack() as stack:
        for owner, name, new in changes:
            stack.enter_context(changed(owner, name, alone(new), rules))
        yield


# ---- the operations


def _create(rules: Rules, original: Any, response: Any) -> ActionResult:
    asked, jobs = json.loads(response.body), response.sagemaker_backend.training_jobs
    check_shape(operation_input("CreateTrainingJob"), asked, "")
    check_limits(asked)
    name, region, account = asked["TrainingJobName"], response.region, response.current_account
    arn = f"arn:aws:sagemaker:{region}:{account}:training-job/{name}"
    if name in jobs:
        raise SagemakerClientError(
            "ResourceInUse",
            "Training job names must be unique within an AWS account and region, and a training job with this name "
            f"already exists ({arn})",
        )
    if asked["RoleArn"] not in rules.roles:
        check_role(asked["RoleArn"], account)
    if rules.refuses_missing_data and (missing := missing_data(asked, arn)):
        raise invalid(missing)
    job = TrainingJob(rules, arn, asked, jobs)
    check_quota(job)
    reuse(job)
    jobs[name] = job
    return ActionResult({"TrainingJobArn": arn})


def _describe(rules: Rules, original: Any, response: Any) -> ActionResult:
    job = _known(response)
    _show(job)
    return ActionResult(copy.deepcopy(job.described))  # which goes on while the answer is written


def _stop(rules: Rules, original: Any, response: Any) -> EmptyResult:
    job = _known(response)
    if job.status != "InProgress":
        raise invalid(f"The request was rejected because the training job is in status {job.status}.")
    stopping(job)
    if rules.slow.stopping == 0:
        stopped(job)
    return EmptyResult()


def _update(rules: Rules, original: Any, response: Any) -> ActionResult:
    """Of what can be updated, the time that a warm pool stays."""
    job, asked = _known(response), json.loads(response.body)
    kept_s = asked.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds")
    if kept_s is not None:
        check_shape(operation_input("UpdateTrainingJob"), asked, "")
        if job.pool not in ("Available", "InUse"):
            raise invalid(f"The training job {job.name} has no warm pool that is in use or available.")  # [?]
        job.described["ResourceConfig"]["KeepAlivePeriodInSeconds"] = kept_s
        job.described["LastModifiedTime"] = rules.now()
        cool(job)
    return ActionResult({"TrainingJobArn": job.arn})


def _known(response: Any) -> TrainingJob:
    job = response.sagemaker_backend.training_jobs.get(response._get_param("TrainingJobName"))
    if job is None:
        raise invalid("Requested resource not found.")
    return job  # type: ignore[no-any-return]


def _show(job: TrainingJob) -> None:
    """The job is described; with every answer one that stops gets on with it."""
    cool(job)
    if job.status == "Stopping" and job.rules.slow.stopping is not None:
        job.shown_for -= 1
        if job.shown_for < 0:
            stopped(job)


SORTED_BY = {"Name": lambda job: job.name, "CreationTime": lambda job: job.described["CreationTime"],
             "Status": lambda job: job.status}  # fmt: skip


def _list(rules: Rules, original: Any, response: Any) -> ActionResult:
    """Newest first unless asked otherwise.  With MaxResults the status is looked at page by page, as AWS does it."""
    ask, known = response._get_param, list(response.sagemaker_backend.training_jobs.values())
    jobs = [job for job in known if job.name not in rules.unlisted]
    shape = operation_input("ListTrainingJobs")
    check_shape(shape, {key: value for key, value in response.params.items() if key in shape.members}, "")
    status, size = ask("StatusEquals"), int(ask("MaxResults") or 0)
    found = [job for job in jobs if _is_asked_for(job, ask) and (size or status in (None, job.status))]
    found.sort(key=SORTED_BY[ask("SortBy", "CreationTime")], reverse=ask("SortOrder", "Descending") == "Descending")
    start, end = int(ask("NextToken") or 0), int(ask("NextToken") or 0) + (size or PAGE)
    page = [job for job in found[start:end] if status in (None, job.status)]
    answer: dict[str, Any] = {"TrainingJobSummaries": [_summary(job) for job in page]}
    return ActionResult(answer | ({"NextToken": str(end)} if end < len(found) else {}))


def _summary(job: TrainingJob) -> dict[str, Any]:
    cool(job)
    keys = ("TrainingJobName", "TrainingJobArn", "CreationTime", "LastModifiedTime", "TrainingEndTime",
            "TrainingJobStatus", "SecondaryStatus", "WarmPoolStatus")  # fmt: skip
    return {key: copy.copy(job.described[key]) for key in keys if key in job.described}


def _is_asked_for(job: TrainingJob, ask: Callable[[str], Any]) -> bool:
    times = {"CreationTime": job.described["CreationTime"], "LastModifiedTime": job.described["LastModifiedTime"]}
    return (
        (ask("NameContains") or "") in job.name
        and ask("WarmPoolStatusEquals") in (None, job.pool)
        and all(not ask(f"{key}After") or time > _utc(ask(f"{key}After")) for key, time in times.items())
        and all(not ask(f"{key}Before") or time < _utc(ask(f"{key}Before")) for key, time in times.items())
    )


def _utc(time: Any) -> datetime:
    if isinstance(time, datetime):
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    return datetime.fromtimestamp(float(time), UTC)


# ---- quotas


def quota_code(name: str) -> str:
    """A code for the quota of this name; not AWS's own, but as stable."""
    return f"L-{hashlib.sha256(name.encode()).hexdigest()[:8].upper()}"


def _quota(rules: Rules, name: str) -> dict[str, Any]:
    return {
        "ServiceCode": "sagemaker",
        "ServiceName": "Amazon SageMaker",
        "QuotaCode": quota_code(name),
        "QuotaName": name,
        "Value": rules.quota[name],
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }


def _list_service_quotas(rules: Rules, original: Any, response: Any) -> str:
    asked = json.loads(response.body)
    if asked["ServiceCode"] != "sagemaker":
        raise NoSuchResource
    names, start, size = sorted(rules.quota), int(asked.get("NextToken") or 0), int(asked.get("MaxResults") or 100)
    answer: dict[str, Any] = {"Quotas": [_quota(rules, name) for name in names[start : start + size]]}
    if start + size < len(names):
        answer["NextToken"] = str(start + size)
    return json.dumps(answer)


def _get_service_quota(rules: Rules, original: Any, backend: Any, **asked: str) -> dict[str, Any]:
    if asked["service_code"] != "sagemaker":
        return dict(original(backend, **asked))
    for name in rules.quota:
        if quota_code(name) == asked["quota_code"]:
            return _quota(rules, name)
    raise NoSuchResource
