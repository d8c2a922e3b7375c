"""AWS Batch's operations on container jobs that run on Fargate, and on what these need.

moto has some of them for jobs in Docker; ours know queues with shares, consumable resources and every attempt.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from moto.batch.exceptions import ClientException

from launch.aws.names import CONTROLLER, CONTROLLER_LOGS, FOR_EC2, TOOLKIT, queue_name, vcpus_name
from launch.rehearse.aws.batch.containers import FARGATE, Consumable, ContainerJob, Definition, FargateQueue, held
from launch.rehearse.aws.batch.jobs import WAITING, Queue, ms
from launch.rehearse.aws.batch.refusals import (
    check_definition,
    check_job,
    check_machines,
    check_request,
    page,
    selected,
)
from launch.rehearse.aws.batch.scheduler import step, terminate

VCPUS = 64  # of the compute environment in queue.yaml


def make_fargate_queue(rules: Any, name: str, region: str, account: str, vcpus: Mapping[str, int]) -> Queue:
    """Makes what infra/cloudformation/queue.yaml has for launch.ec2 --queue NAME.  vcpus: by the quota's kind."""
    full = queue_name(name, FOR_EC2)
    queue = FargateQueue(
        name=full,
        arn=_arn(region, account, "job-queue", full),
        environment=_arn(region, account, "compute-environment", full),
        most=VCPUS,
        policy=_arn(region, account, "scheduling-policy", full),
    )
    for kind, total in vcpus.items():
        arn = _arn(region, account, "consumable-resource", vcpus_name(name, kind))
        rules.batch.consumables[arn] = Consumable(arn, total, rules.batch.now())
    register(rules, controller(region, account), region, account)
    return rules.batch.queues.setdefault(queue.arn, queue)  # type: ignore[no-any-return]


def controller(region: str, account: str) -> dict[str, Any]:
    """The job definition of queue.yaml."""
    role = f"arn:aws:iam::{account}:role/{CONTROLLER}"
    logs = {"awslogs-group": CONTROLLER_LOGS, "awslogs-region": region, "awslogs-stream-prefix": "controller"}
    return {
        "jobDefinitionName": CONTROLLER,
        "type": "container",
        "platformCapabilities": ["FARGATE"],
        "propagateTags": True,
        "schedulingPriority": 0,
        "retryStrategy": {
            "attempts": 10,
            "evaluateOnExit": [{"onExitCode": code, "action": "EXIT"} for code in "23457"],
        },
        "containerProperties": {
            "image": f"{account}.dkr.ecr.{region}.amazonaws.com/{TOOLKIT}@sha256:{'0' * 64}",
            "command": ["python", "-m", "launch.ec2.controller", "--help"],
            "jobRoleArn": f"{role}-{region}",
            "executionRoleArn": f"{role}-execution-{region}",
            "resourceRequirements": [{"type": "VCPU", "value": "0.25"}, {"type": "MEMORY", "value": "1024"}],
            "networkConfiguration": {"assignPublicIp": "ENABLED"},
            "logConfiguration": {"logDriver": "awslogs", "options": logs},
        },
    }


def _arn(region: str, account: str, kind: str, name: str) -> str:
    return f"arn:aws:batch:{region}:{account}:{kind}/{name}"


def _arn_here(response: Any, kind: str, name: str) -> str:
    return _arn(response.region, response.current_account, kind, name)


def _is_here(arn: str, response: Any) -> bool:
    return bool(arn.split(":")[3] == response.region)


# ---- queues


def createcomputeenvironment(rules: Any, original: Any, response: Any) -> str:
    """https://docs.aws.amazon.com/batch/latest/APIReference/API_CreateComputeEnvironment.html"""
    request = json.loads(response.body)
    resources = request.get("computeResources", {})
    if resources.get("type") != "FARGATE":
        return str(original(response))
    check_request("CreateComputeEnvironment", request)
    check_machines(resources)
    arn = _arn_here(response, "compute-environment", request["computeEnvironmentName"])
    if arn in rules.batch.environments:
        raise ClientException("Object already exists")
    rules.batch.environments[arn] = resources["maxvCpus"]
    return json.dumps({"computeEnvironmentName": request["computeEnvironmentName"], "computeEnvironmentArn": arn})


def describecomputeenvironments(rules: Any, original: Any, response: Any) -> str:
    wanted, keys = response._get_param("computeEnvironments"), ("computeEnvironmentName", "computeEnvironmentArn")
    queues = [queue for queue in rules.batch.in_region(response.region) if isinstance(queue, FargateQueue)]
    rows = [queue.environment_described for queue in queues]
    shown = [row for row in rows if not wanted or {row[key] for key in keys} & {*wanted}]
    others = json.loads(original(response))["computeEnvironments"]
    return json.dumps({"computeEnvironments": [*others, *shown]})


def createjobqueue(rules: Any, original: Any, response: Any) -> str:
    """https://docs.aws.amazon.com/batch/latest/APIReference/API_CreateJobQueue.html"""
    request = json.loads(response.body)
    places = [row["computeEnvironment"] for row in request.get("computeEnvironmentOrder", ())]
    arns = [
        place if place.startswith("arn:") else _arn_here(response, "compute-environment", place) for place in places
    ]
    if not arns or arns[0] not in rules.batch.environments:
        return str(original(response))
    check_request("CreateJobQueue", request)
    if request.get("jobQueueType", FARGATE) != FARGATE:
        raise ClientException(f"Job queue type must be {FARGATE} for Fargate compute environments.")  # [?]
    name = request["jobQueueName"]
    arn = _arn_here(response, "job-queue", name)
    if rules.batch.queue(name, response.region):
        raise ClientException(f"Job queue {name} already exists")
    policy, state = request.get("schedulingPolicyArn", ""), request.get("state", "ENABLED")
    rules.batch.queues[arn] = FargateQueue(
        name, arn, arns[0], rules.batch.environments[arns[0]], policy, state=state
    )  # fmt: skip
    return json.dumps({"jobQueueName": name, "jobQueueArn": arn})


# ---- consumable resources


def createconsumableresource(rules: Any, original: Any, response: Any) -> str:
    """https://docs.aws.amazon.com/batch/latest/APIReference/API_CreateConsumableResource.html"""
    request = json.loads(response.body)
    check_request("CreateConsumableResource", request)
    arn = _arn_here(response, "consumable-resource", request["consumableResourceName"])
    if arn in rules.batch.consumables:
        raise ClientException(f"Consumable resource {arn} already exists")  # [?]
    kind = request.get("resourceType", "REPLENISHABLE")
    made = Consumable(arn, request.get("totalQuantity", 0), rules.batch.now(), kind, request.get("tags", {}))
    rules.batch.consumables[arn] = made
    return json.dumps({"consumableResourceName": made.name, "consumableResourceArn": arn})


def describeconsumableresource(rules: Any, original: Any, response: Any) -> str:
    """https://docs.aws.amazon.com/batch/latest/APIReference/API_DescribeConsumableResource.html"""
    step(rules)
    return json.dumps(_shown(_consumable(rules, response), rules))


def listconsumableresources(rules: Any, original: Any, response: Any) -> str:
    step(rules)
    rows = [_shown(one, rules) for one in rules.batch.consumables.values() if _is_here(one.arn, response)]
    keys = ("consumableResourceArn", "consumableResourceName", "totalQuantity", "inUseQuantity", "resourceType")
    found = selected([{key: row[key] for key in keys} for row in rows], response._get_param("filters"))
    return json.dumps(page(found, "consumableResources", response))


def updateconsumableresource(rules: Any, original: Any, response: Any) -> str:
    """https://docs.aws.amazon.com/batch/latest/APIReference/API_UpdateConsumableResource.html"""
    request, one = json.loads(response.body), _consumable(rules, response)
    quantity = request.get("quantity", 0)
    total = {"SET": quantity, "ADD": one.total + quantity, "REMOVE": one.total - quantity}[request["operation"]]
    if quantity < 0 or total < 0:
        raise ClientException("quantity must be non-negative")  # [?]
    one.total = total
    step(rules)
    return json.dumps({**_shown(one, rules)})


def _consumable(rules: Any, response: Any) -> Consumable:
    name = json.loads(response.body)["consumableResource"]
    arn = name if name.startswith("arn:") else _arn_here(response, "consumable-resource", name)
    if arn not in rules.batch.consumables:
        raise ClientException(f"Consumable resource {name} does not exist.")  # [?]
    return rules.batch.consumables[arn]  # type: ignore[no-any-return]


def _shown(one: Consumable, rules: Any) -> dict[str, Any]:
    in_use = held(list(rules.batch.jobs.values()), one.name)
    return {
        "consumableResourceName": one.name,
        "consumableResourceArn": one.arn,
        "totalQuantity": one.total,
        "inUseQuantity": in_use,
        "availableQuantity": max(0, one.total - in_use),
        "resourceType": one.kind,
        "createdAt": ms(one.created),
        "tags": dict(one.tags),
    }


# ---- job definitions


def registerjobdefinition(rules: Any, original: Any, response: Any) -> str:
    """https://docs.aws.amazon.com/batch/latest/APIReference/API_RegisterJobDefinition.html"""
    request = json.loads(response.body)
    if request.get("platformCapabilities") != ["FARGATE"]:
        return str(original(response))
    made = register(rules, request, response.region, response.current_account)
    answer = {"jobDefinitionName": request["jobDefinitionName"], "jobDefinitionArn": made.arn}
    return json.dumps({**answer, "revision": made.revision})


def register(rules: Any, request: dict[str, Any], region: str, account: str) -> Definition:
    """Registers the next revision of a job definition.  Raises ClientException."""
    check_request("RegisterJobDefinition", request)
    check_definition(request)
    base = _arn(region, account, "job-definition", request["jobDefinitionName"])
    revision = 1 + sum(arn.rpartition(":")[0] == base for arn in rules.batch.definitions)
    made = Definition(f"{base}:{revision}", revision, request)
    rules.batch.definitions[made.arn] = made
    return made


def describejobdefinitions(rules: Any, original: Any, response: Any) -> str:
    ask = response._get_param
    ours = [one for one in rules.batch.definitions.values() if _is_here(one.arn, response)]
    ours = [one for one in ours if ask("jobDefinitionName") in (None, one.request["jobDefinitionName"])]
    ours = [one for one in ours if not ask("jobDefinitions") or _names(one) & {*ask("jobDefinitions")}]
    shown = [one.described for one in ours if ask("status") in (None, one.status)]
    return json.dumps({"jobDefinitions": [*json.loads(original(response))["jobDefinitions"], *shown]})


def _names(one: Definition) -> set[str]:
    """By which a definition can be asked for."""
    last = one.arn.rpartition("/")[2]
    return {one.arn, one.arn.rpartition(":")[0], last, last.rpartition(":")[0]}


# ---- jobs


def submitjob(rules: Any, original: Any, response: Any) -> str:
    """https://docs.aws.amazon.com/batch/latest/APIReference/API_SubmitJob.html: it takes no token."""
    request = json.loads(response.body)
    queue = rules.batch.queue(request.get("jobQueue", ""), response.region)
    if not isinstance(queue, FargateQueue):
        return str(original(response))
    check_request("SubmitJob", request)
    here = [one for one in rules.batch.definitions.values() if _is_here(one.arn, response)]
    found = [one for one in here if request["jobDefinition"] in _names(one) and one.status == "ACTIVE"]
    if not found:
        raise ClientException(f"JobDefinition {request['jobDefinition']} does not exist.")  # [?]
    there = {one.name for one in rules.batch.consumables.values() if _is_here(one.arn, response)}
    name = str(uuid.uuid4())
    arn = _arn_here(response, "job", name)
    job = ContainerJob(name, arn, queue, request, found[-1], rules.batch.now())
    check_job(job, there)
    rules.batch.jobs[name] = job
    return json.dumps({"jobArn": arn, "jobName": request["jobName"], "jobId": name})


def describejobs(rules: Any, original: Any, response: Any) -> str:
    """https://docs.aws.amazon.com/batch/latest/APIReference/API_DescribeJobs.html: up to 100 of them."""
    step(rules)
    names = [name.rpartition("/")[2] for name in response._get_param("jobs")]
    if len(names) > 100:
        raise ClientException("Cannot describe more than 100 jobs")  # [?]
    found = [job for name in names if isinstance(job := rules.batch.jobs.get(name), ContainerJob)]
    shown = [job.described for job in found if _is_here(job.arn, response)]
    return json.dumps({"jobs": shown} if shown else json.loads(original(response)))


def listjobs(rules: Any, original: Any, response: Any) -> str:
    """https://docs.aws.amazon.com/batch/latest/APIReference/API_ListJobs.html"""
    queue = rules.batch.queue(response._get_param("jobQueue") or "", response.region)
    if not isinstance(queue, FargateQueue):
        return str(original(response))
    step(rules)
    filters, status = response._get_param("filters"), response._get_param("jobStatus")
    found = selected([job.summary for job in rules.batch.of(queue)[::-1]], filters)
    if not filters:
        status = status or "RUNNING"
    elif filters[0]["name"] != "SHARE_IDENTIFIER":
        status = None
    found = [row for row in found if status in (None, row["status"])]
    return json.dumps(page(found, "jobSummaryList", response, size=100 if filters else 1000))


def terminatejob(rules: Any, original: Any, response: Any) -> str:
    """https://docs.aws.amazon.com/batch/latest/APIReference/API_TerminateJob.html"""
    return _ended(rules, original, response, is_cancelled=False)


def canceljob(rules: Any, original: Any, response: Any) -> str:
    """Only of one that waits: https://docs.aws.amazon.com/batch/latest/APIReference/API_CancelJob.html"""
    return _ended(rules, original, response, is_cancelled=True)


def _ended(rules: Any, original: Any, response: Any, *, is_cancelled: bool) -> str:
    request = json.loads(response.body)
    job = rules.batch.jobs.get(request["jobId"].rpartition("/")[2])
    if not isinstance(job, ContainerJob):
        return str(original(response))
    check_request("CancelJob" if is_cancelled else "TerminateJob", request)
    step(rules)
    if not is_cancelled or job.status in WAITING:
        job.is_cancelled = is_cancelled and job.status in WAITING
        terminate(job, request["reason"], rules)
        step(rules)
    return "{}"


OPERATIONS: Sequence[Callable[..., str]] = (
    createcomputeenvironment,
    describecomputeenvironments,
    createjobqueue,
    createconsumableresource,
    describeconsumableresource,
    listconsumableresources,
    updateconsumableresource,
    registerjobdefinition,
    describejobdefinitions,
    submitjob,
    describejobs,
    listjobs,
    terminatejob,
    canceljob,
)
