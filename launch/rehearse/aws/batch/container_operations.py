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
from launch.rehearse.aws.batch.containers import Consumable, ContainerJob, Definition, FargateQueue, held
from launch.rehearse.aws.batch.jobs import Queue, ms
from launch.rehearse.aws.batch.refusals import check_job, check_request, listed
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


# ---- consumable resources


def describeconsumableresource(rules: Any, original: Any, response: Any) -> str:
    """https://docs.aws.amazon.com/batch/latest/APIReference/API_DescribeConsumableResource.html"""
    step(rules)
    return json.dumps(_shown(_consumable(rules, response), rules))


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
        "resourceType": "REPLENISHABLE",
        "createdAt": ms(one.created),
        "tags": {},
    }


# ---- job definitions


def register(rules: Any, request: dict[str, Any], region: str, account: str) -> Definition:
    """Registers the next revision of a job definition."""
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
    shown = [one.described for one in ours if ask("status") in (None, "ACTIVE")]
    return json.dumps({"jobDefinitions": [*json.loads(original(response))["jobDefinitions"], *shown]})


def _names(one: Definition) -> set[str]:
    """Names by which a definition can be looked up."""
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
    found = [one for one in here if request["jobDefinition"] in _names(one)]
    if not found:
        raise ClientException(f"JobDefinition {request['jobDefinition']} does not exist.")  # [?]
    there = {one.name for one in rules.batch.consumables.values() if _is_here(one.arn, response)}
    name = str(uuid.uuid4())
    arn = _arn_here(response, "job", name)
    job = ContainerJob(id=name, arn=arn, queue=queue, request=request, created=rules.batch.now(), definition=found[-1])
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
    return json.dumps(listed(rules, queue, response, size=100 if response._get_param("filters") else 1000))


def terminatejob(rules: Any, original: Any, response: Any) -> str:
    """https://docs.aws.amazon.com/batch/latest/APIReference/API_TerminateJob.html"""
    request = json.loads(response.body)
    job = rules.batch.jobs.get(request["jobId"].rpartition("/")[2])
    if not isinstance(job, ContainerJob):
        return str(original(response))
    check_request("TerminateJob", request)
    step(rules)
    terminate(job, request["reason"], rules)
    step(rules)
    return "{}"


OPERATIONS: Sequence[Callable[..., str]] = (
    describeconsumableresource,
    describejobdefinitions,
    submitjob,
    describejobs,
    listjobs,
    terminatejob,
)
