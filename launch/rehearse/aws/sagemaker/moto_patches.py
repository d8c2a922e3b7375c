"""Patch moto's classes where they lack or differ from SageMaker's behaviour.

Everything configurable, such as quotas, is in Rules.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from moto.batch.responses import BatchResponse
from moto.core.responses import ActionResult, EmptyResult
from moto.ecr.models import ECRBackend
from moto.sagemaker.exceptions import SagemakerClientError
from moto.sagemaker.responses import SageMakerResponse
from moto.servicequotas.exceptions import NoSuchResource
from moto.servicequotas.models import ServiceQuotasBackend
from moto.servicequotas.responses import ServiceQuotasResponse

from launch.rehearse.aws import access
from launch.rehearse.aws.batch.moto_patches import OPERATIONS, routed
from launch.rehearse.aws.sagemaker.changes import stopped, stopping
from launch.rehearse.aws.sagemaker.jobs import TrainingJob, cool, reuse
from launch.rehearse.aws.sagemaker.refusals import (
    check_image,
    check_limits,
    check_plans,
    check_quota,
    check_role,
    check_shape,
    invalid,
    missing_data,
)
from launch.rehearse.aws.sagemaker.rules import Rules, operation_input

PAGE = 10  # default number of jobs in an answer


@contextmanager
def patched(rules: Rules) -> Iterator[None]:
    """Make moto behave as AWS under `rules` inside the block."""
    with access.patched(rules, {**METHODS, BatchResponse: OPERATIONS}), routed(rules):
        yield


# ---- the operations


def create_training_job(rules: Rules, original: Any, response: Any) -> ActionResult:
    return ActionResult({"TrainingJobArn": new_job(rules, json.loads(response.body), response).arn})


def new_job(rules: Rules, request: dict[str, Any], response: Any) -> TrainingJob:
    """The training job of a request, if that is not refused."""
    jobs = response.sagemaker_backend.training_jobs
    check_shape(operation_input("CreateTrainingJob"), request, "")
    check_limits(request)
    name, region, account = request["TrainingJobName"], response.region, response.current_account
    arn = f"arn:aws:sagemaker:{region}:{account}:training-job/{name}"
    if name in jobs:
        raise SagemakerClientError(
            "ResourceInUse",
            "Training job names must be unique within an AWS account and region, and a training job with this name "
            f"already exists ({arn})",
        )
    if request["RoleArn"] not in rules.roles:
        check_role(request["RoleArn"], arn)
    check_plans(request, rules.plans)
    check_image(request, account)
    if rules.refuses_missing_data and (missing := missing_data(request, arn)):
        raise invalid(missing)
    job = TrainingJob(rules, arn, request, jobs)
    check_quota(job)
    reuse(job)
    jobs[name] = job
    return job


def describe_training_job(rules: Rules, original: Any, response: Any) -> ActionResult:
    job = _job_of(response)
    _show(job)
    return ActionResult(copy.deepcopy(job.described))  # a copy, as it may change while the answer is written


def stop_training_job(rules: Rules, original: Any, response: Any) -> EmptyResult:
    job = _job_of(response)
    if job.status != "InProgress":
        raise invalid(f"The request was rejected because the training job is in status {job.status}.")
    stopping(job)
    if rules.answers_stopping == 0:
        stopped(job)
    return EmptyResult()


def update_training_job(rules: Rules, original: Any, response: Any) -> ActionResult:
    """Update how long a warm pool is kept; moto has nothing else that can be updated."""
    job, request = _job_of(response), json.loads(response.body)
    kept_s = request.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds")
    if kept_s is not None:
        check_shape(operation_input("UpdateTrainingJob"), request, "")
        if job.pool not in ("Available", "InUse"):
            raise invalid(f"The training job {job.name} has no warm pool that is in use or available.")  # [?]
        job.described["ResourceConfig"]["KeepAlivePeriodInSeconds"] = kept_s
        job.described["LastModifiedTime"] = rules.now()
        cool(job)
    return ActionResult({"TrainingJobArn": job.arn})


def _job_of(response: Any) -> TrainingJob:
    job = response.sagemaker_backend.training_jobs.get(response._get_param("TrainingJobName"))
    if job is None:
        raise invalid("Requested resource not found.")
    return job  # type: ignore[no-any-return]


def _show(job: TrainingJob) -> None:
    """Advance a job that is stopping, as each answer that describes it does."""
    cool(job)
    if job.status == "Stopping" and job.rules.answers_stopping is not None:
        job.shown_for -= 1
        if job.shown_for < 0:
            stopped(job)


def list_training_jobs(rules: Rules, original: Any, response: Any) -> ActionResult:
    """Newest first, by the filters that launchers ask for.  With MaxResults the status is filtered page by page."""
    ask, shape = response._get_param, operation_input("ListTrainingJobs")
    check_shape(shape, {key: response.params[key] for key in shape.members if key in response.params}, "")
    jobs = sorted(response.sagemaker_backend.training_jobs.values(), key=lambda job: job.described["CreationTime"])
    jobs = [job for job in reversed(jobs) if job.name not in rules.unlisted and _matches(job, ask)]
    if ask("MaxResults") is None:
        jobs = [job for job in jobs if _has_status(job, ask)]
    return ActionResult(_page(jobs, ask))


def _page(jobs: list[TrainingJob], ask: Callable[[str], Any]) -> dict[str, Any]:
    start = int(ask("NextToken") or 0)
    end = start + int(ask("MaxResults") or PAGE)
    page: dict[str, Any] = {"TrainingJobSummaries": [_summary(job) for job in jobs[start:end] if _has_status(job, ask)]}
    if end < len(jobs):
        page["NextToken"] = str(end)
    return page


def _matches(job: TrainingJob, ask: Callable[[str], Any]) -> bool:
    after = ask("CreationTimeAfter")
    return (
        (ask("NameContains") or "") in job.name
        and ask("WarmPoolStatusEquals") in (None, job.pool)
        and (not after or job.described["CreationTime"] > _utc(after))
    )


def _has_status(job: TrainingJob, ask: Callable[[str], Any]) -> bool:
    return ask("StatusEquals") in (None, job.status)


def _utc(time: Any) -> datetime:
    if isinstance(time, datetime):
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    return datetime.fromtimestamp(float(time), UTC)


def _summary(job: TrainingJob) -> dict[str, Any]:
    cool(job)
    keys = ("TrainingJobName", "TrainingJobArn", "CreationTime", "LastModifiedTime", "TrainingEndTime",
            "TrainingJobStatus", "SecondaryStatus", "WarmPoolStatus")  # fmt: skip
    return {key: copy.copy(job.described[key]) for key in keys if key in job.described}


# ---- quotas


def quota_code(name: str) -> str:
    """A stable code for the quota of this name; not AWS's own."""
    return f"L-{hashlib.sha256(name.encode()).hexdigest()[:8].upper()}"


def _quota(rules: Rules, name: str) -> dict[str, Any]:
    return {"ServiceCode": "sagemaker", "QuotaCode": quota_code(name), "QuotaName": name, "Value": rules.quota[name]}


def list_service_quotas(rules: Rules, original: Any, response: Any) -> str:
    request = json.loads(response.body)
    if request["ServiceCode"] != "sagemaker":
        raise NoSuchResource
    names, start, size = sorted(rules.quota), int(request.get("NextToken") or 0), int(request.get("MaxResults") or 100)
    answer: dict[str, Any] = {"Quotas": [_quota(rules, name) for name in names[start : start + size]]}
    if start + size < len(names):
        answer["NextToken"] = str(start + size)
    return json.dumps(answer)


def get_service_quota(rules: Rules, original: Any, backend: Any, **named: str) -> dict[str, Any]:
    if named["service_code"] != "sagemaker":
        return dict(original(backend, **named))
    for name in rules.quota:
        if quota_code(name) == named["quota_code"]:
            return _quota(rules, name)
    raise NoSuchResource


# ---- ECR


def batch_get_image(
    rules: Any, original: Any, ecr: Any, name: str, registry: str | None = None, images: Any = None
) -> Any:
    """AWS's own registries have every image: moto knows only the account's."""
    if registry in (None, ecr.account_id):
        return original(ecr, name, registry, images)
    rows = []
    for image in images:
        digest = hashlib.sha256(f"{registry}/{name}:{image.get('imageTag')}".encode()).hexdigest()
        named = {"imageDigest": image.get("imageDigest", f"sha256:{digest}")} | image
        rows.append({"registryId": registry, "repositoryName": name, "imageId": named, "imageManifest": "{}"})
    return {"images": rows, "failures": []}


# A class of moto's -> replacements of its methods with the same names.
METHODS: access.Replacements = {
    SageMakerResponse: [
        create_training_job,
        describe_training_job,
        stop_training_job,
        update_training_job,
        list_training_jobs,
    ],
    ECRBackend: [batch_get_image],
    ServiceQuotasResponse: [list_service_quotas],
    ServiceQuotasBackend: [get_service_quota],
}
