"""The operations on AWS Batch's queues of both kinds, and on service jobs, which moto lacks."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from moto.batch import urls
from moto.batch.exceptions import ClientException
from moto.batch.responses import BatchResponse

from launch.rehearse.aws.batch import container_operations
from launch.rehearse.aws.batch.containers import FargateQueue
from launch.rehearse.aws.batch.jobs import ACTIVE, OVER, UNIT, Queue, ServiceJob, ms
from launch.rehearse.aws.batch.refusals import check_request, listed, refuse
from launch.rehearse.aws.batch.scheduler import step, terminate

FRONT = 100  # jobs in a snapshot
# https://docs.aws.amazon.com/batch/latest/userguide/service_limits.html
PAYLOAD_BYTES, REQUEST_BYTES = 10 * 1024, 30 * 1024


@contextmanager
def routed(rules: Any) -> Iterator[None]:
    """Inside the block, moto's server knows the operations, and IAM the tags of service jobs."""
    rules.access.service_jobs = rules.batch.jobs
    more = {f"{{0}}/v1/{method.__name__}$": BatchResponse.dispatch for method in OPERATIONS}
    with mock.patch.dict(urls.url_paths, more):
        yield


def make_queue(rules: Any, name: str, most: int, region: str, account: str, *, has_shares: bool = True) -> Queue:
    """Makes a queue with a service environment of `most` instances, as launch.infra's stack has it."""

    def arn(kind: str) -> str:
        return f"arn:aws:batch:{region}:{account}:{kind}/{name}"

    policy = arn("scheduling-policy") if has_shares else ""
    queue = Queue(name, arn("job-queue"), arn("service-environment"), most, policy)
    made: Queue = rules.batch.queues.setdefault(queue.arn, queue)
    return made


# ---- the operations, by the last part of their URLs, as moto names its methods


def describejobqueues(rules: Any, original: Any, response: Any) -> str:
    wanted = response._get_param("jobQueues")
    ours = rules.batch.in_region(response.region)
    shown = [one.described for one in ours if not wanted or {one.name, one.arn} & set(wanted)]
    return json.dumps({"jobQueues": [*json.loads(original(response))["jobQueues"], *shown]})


def describeserviceenvironments(rules: Any, original: Any, response: Any) -> str:
    wanted, keys = response._get_param("serviceEnvironments"), ("serviceEnvironmentName", "serviceEnvironmentArn")
    queues = [queue for queue in rules.batch.in_region(response.region) if not isinstance(queue, FargateQueue)]
    rows = [queue.environment_described for queue in queues]
    shown = [row for row in rows if not wanted or {row[key] for key in keys} & {*wanted}]
    return json.dumps({"serviceEnvironments": shown})


def submitservicejob(rules: Any, original: Any, response: Any) -> str:
    """https://docs.aws.amazon.com/batch/latest/APIReference/API_SubmitServiceJob.html"""
    request = json.loads(response.body)
    check_request("SubmitServiceJob", request)
    refuse({
        "serviceRequestPayload is too large": len(request["serviceRequestPayload"].encode()) > PAYLOAD_BYTES,
        "request is too large": len(response.body) > REQUEST_BYTES,
    })  # fmt: skip
    queue = _queue(rules, request["jobQueue"], response.region)
    if queue.state != "ENABLED" or isinstance(queue, FargateQueue):
        raise ClientException(f"Job queue {queue.name} is not enabled.")  # [?]
    if bool(queue.policy) != ("shareIdentifier" in request):
        must = "must be specified for a" if queue.policy else "can't be specified for a FIFO"
        raise ClientException(f"shareIdentifier {must} job queue {'with a fair-share policy' if queue.policy else ''}")
    token = request.get("clientToken")
    if token in rules.batch.tokens:
        known = rules.batch.jobs[rules.batch.tokens[token]]
        if known.request["serviceRequestPayload"] == request["serviceRequestPayload"]:
            raise ClientException("A request with the same clientToken was submitted already.")  # [?] it "is rejected"
    name = str(uuid.uuid4())
    arn = f"arn:aws:batch:{response.region}:{response.current_account}:service-job/{name}"
    job = ServiceJob(name, arn, queue, request, rules.batch.now())
    rules.batch.jobs[name] = job
    if token:
        rules.batch.tokens[token] = name
    return json.dumps({"jobArn": arn, "jobName": request["jobName"], "jobId": name})


def describeservicejob(rules: Any, original: Any, response: Any) -> str:
    step(rules)
    return json.dumps(_job(rules, response).described)


def listservicejobs(rules: Any, original: Any, response: Any) -> str:
    queue = _queue(rules, response._get_param("jobQueue"), response.region)
    return json.dumps(listed(rules, queue, response, size=100))


def getjobqueuesnapshot(rules: Any, original: Any, response: Any) -> str:
    step(rules)
    queue = _queue(rules, response._get_param("jobQueue"), response.region)
    now_ms = ms(rules.batch.now())
    front = [
        {"jobArn": job.arn, "earliestTimeAtPosition": ms(job.runnable_since or job.created)}
        for job in rules.batch.in_order(queue)[:FRONT]
    ]
    used: dict[str, Any] = {"totalCapacityUsage": _usage(queue, rules.batch.in_use(queue)), "lastUpdatedAt": now_ms}
    if queue.policy:
        shares = {job.share: rules.batch.in_use(queue, job.share) for job in rules.batch.of(queue, *ACTIVE)}
        rows = [{"shareIdentifier": share, "capacityUsage": _usage(queue, count)} for share, count in shares.items()]
        used["fairshareUtilization"] = {"activeShareCount": len(rows), "topCapacityUtilization": rows}
    return json.dumps({"frontOfQueue": {"jobs": front, "lastUpdatedAt": now_ms}, "queueUtilization": used})


def terminateservicejob(rules: Any, original: Any, response: Any) -> str:
    step(rules)
    terminate(_job(rules, response), json.loads(response.body)["reason"], rules)
    step(rules)
    return "{}"


OPERATIONS: Sequence[Callable[..., str]] = (
    describejobqueues,
    describeserviceenvironments,
    submitservicejob,
    describeservicejob,
    listservicejobs,
    getjobqueuesnapshot,
    terminateservicejob,
    *container_operations.OPERATIONS,
)


def _queue(rules: Any, name: str, region: str) -> Queue:
    queue: Queue | None = rules.batch.queue(name or "", region)
    if queue is None:
        raise ClientException(f"Job queue {name} does not exist.")
    return queue


def _job(rules: Any, response: Any) -> ServiceJob:
    name = str(json.loads(response.body)["jobId"]).rpartition("/")[2]
    if name not in rules.batch.jobs:
        raise ClientException(f"Service job {name} does not exist.")  # [?]
    job: ServiceJob = rules.batch.jobs[name]
    return job


def _usage(queue: Queue, count: float) -> list[dict[str, Any]]:
    return [{"capacityUnit": "VCPU" if isinstance(queue, FargateQueue) else UNIT, "quantity": count}]


def active(rules: Any) -> list[Any]:
    """The jobs that wait or run."""
    return [job for job in rules.batch.jobs.values() if job.status not in OVER]
