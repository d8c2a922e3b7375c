"""AWS Batch's queue in front of EC2: a job in it is a launcher on Fargate, see controller.py.

A queue called demo is aws-ddp-toolkit-demo-ec2 on AWS; launch.infra makes it.  Its jobs have the names of ours.  The
job folder has queued.json, the settings from which the launcher starts the job once its turn comes.
https://docs.aws.amazon.com/batch/latest/APIReference/API_Operations.html
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from launch.aws import lookup
from launch.aws.batch import Lines, Queued, QueueFacts, is_alive
from launch.aws.client import Aws
from launch.aws.instances.facts import quota_of
from launch.aws.names import (
    BUCKET_TAG,
    CONTROLLER,
    CONTROLLER_LOGS,
    FOR_EC2,
    JOB_TAG,
    SHARE,
    Folder,
    queue_name,
    vcpus_name,
)
from launch.aws.retry import is_busy, retrying
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.job import Job
from launch.core.plan import Request
from launch.core.terminal import Say
from launch.ec2.backend import command
from launch.ec2.checks import Resolved
from launch.ec2.facts import Facts
from launch.ec2.job_folder import job_of
from launch.ec2.options import Ec2Options
from launch.ec2.requests import Cluster, spec

SUBMIT = "SubmitJob"
# Batch ends a job on Fargate after 14 days, and forgets it a week after its end.
LONGEST = timedelta(days=22)
# After TerminateJob: SIGTERM, then 30 s, and some for Batch to notice.
END_S, LOOK_EVERY_S = 180.0, 3.0
# Options of a launch that job.json does not keep, as they may differ between two starts of a job.
OF_A_LAUNCH = ("anyway", "max_usd", "wait_for_capacity")


# ---- look-ups


def queue_facts(aws: Aws, name: str) -> QueueFacts:
    """The queue's state.  Raises NotSetUp if there is none of this name, AwsError."""
    lines = Lines(aws)
    found = lines.called(name)
    return QueueFacts(name, lines.waiting(queue_name(name, FOR_EC2)), "schedulingPolicyArn" in found)


def find_queued(aws: Aws, job: str) -> Queued | None:
    """The newest launcher of `job` in a queue; None without one.  Raises AwsError."""
    lines = Lines(aws)
    newest = max(lines.named(job), key=lambda row: row["createdAt"], default=None)
    return None if newest is None else lines.place(newest)


def _living(aws: Aws, job: str) -> list[str]:
    """The ids of the job's launchers that have not ended: more than one, if the answer to a submission was lost."""
    return [row["jobId"] for row in Lines(aws).named(job) if is_alive(row)]


def all_queued(aws: Aws) -> list[Queued]:
    """The launchers that wait or run.  Raises AwsError."""
    lines = Lines(aws)
    return [lines.place(row) for row in lines.since(datetime.now(UTC) - LONGEST) if is_alive(row)]


def running_names(aws: Aws) -> list[str]:
    """The names of the jobs whose launcher waits or runs in a queue.  Raises AwsError."""
    return [str(row["jobName"]) for row in Lines(aws).since(datetime.now(UTC) - LONGEST) if is_alive(row)]


# ---- the plan's requests


def submission(cluster: Cluster, facts: Facts) -> list[Request]:
    """The requests that put a job into its queue."""
    has_shares = facts.queue is None or facts.queue.has_shares
    spec_of_end = facts.spec if facts.spec and "ended" in facts.spec else {}
    options = cluster.resolved.options
    content = {
        **spec(cluster),
        "queue": options.queue,
        "earlier": spec_of_end.get("started", 0),
        **_of_this_launch(options),
    }
    params = {
        "Bucket": cluster.folder.bucket,
        "Key": cluster.folder.queued,
        "Body": json.dumps(content, indent=1, default=str),
        "ContentType": "application/json",
    }
    return [
        Request("s3", "PutObject", params, "save the settings for its launcher"),
        Request("batch", SUBMIT, _job(cluster, has_shares), f"put the job into queue {cluster.resolved.options.queue}"),
    ]


def _of_this_launch(options: Ec2Options) -> dict[str, Any]:
    return {"launch": {name: getattr(options, name) for name in OF_A_LAUNCH}, "regions": list(options.region)}


def _job(cluster: Cluster, has_shares: bool) -> dict[str, Any]:
    """The launcher as a job of Batch; its definition, of launch.infra, has its image, size and retries.

    https://docs.aws.amazon.com/batch/latest/APIReference/API_SubmitJob.html
    """
    options, folder = cluster.resolved.options, cluster.folder
    words = ["python", "-m", "launch.ec2.controller", cluster.job, "--region", cluster.region]
    vcpus = [{"consumableResource": name, "quantity": count} for name, count in _vcpus(cluster.resolved).items()]
    shares = {"shareIdentifier": options.share or SHARE, "schedulingPriorityOverride": options.priority or 0}
    return {
        "jobName": cluster.job,
        "jobQueue": queue_name(str(options.queue), FOR_EC2),
        "jobDefinition": CONTROLLER,
        **(shares if has_shares else {}),
        "containerOverrides": {"command": [*words, "--bucket", folder.bucket]},
        **({"consumableResourcePropertiesOverride": {"consumableResourceList": vcpus}} if vcpus else {}),
        "propagateTags": True,
        "tags": {JOB_TAG: cluster.job, BUCKET_TAG: folder.bucket},
    }


def _vcpus(resolved: Resolved) -> dict[str, int]:
    """The vCPUs of each quota that the job may need, by the consumable resource; a capacity block has no quota."""
    options, found = resolved.options, dict[str, int]()
    for instance in () if options.capacity_block else resolved.instances:
        if kind := quota_of(instance, options.spot).kind:
            name = vcpus_name(str(options.queue), kind)
            found[name] = max(found.get(name, 0), options.nodes * instance.vcpus)
    return found


def check_vcpus(aws: Aws, resolved: Resolved) -> None:
    """Raise AwsError if the queue counts fewer vCPUs in all than the job needs, so that it would wait for ever."""
    for name, needed in _vcpus(resolved).items():
        found = aws.call("batch", "DescribeConsumableResource", {"consumableResource": name})
        if found["totalQuantity"] < needed:
            queue = resolved.options.queue
            raise AwsError(
                f"the job needs {needed} vCPUs, and {name} of queue {queue} has {found['totalQuantity']}, the quota "
                f"when the queue was made.  Once the quota is higher: python -m launch.infra up --queue {queue}"
            )


# ---- the job's settings in its folder


def read_queued(aws: Aws, folder: Folder) -> dict[str, Any] | None:
    """queued.json; None for a job that went into no queue.  Raises AwsError."""
    return lookup.read_json(aws, folder.bucket, folder.queued)


def is_of(spec: Mapping[str, Any] | None, content: Mapping[str, Any]) -> bool:
    """Whether job.json is of the start that queued.json describes, and not of an earlier one.

    Times are compared for other regions only: the clocks of the machines that wrote them may differ.
    """
    if not spec or "started" not in spec:
        return False
    if spec.get("region") == content["region"]:
        return bool(spec["started"] != content.get("earlier", 0))
    return bool(spec["started"] >= content["started"])


def mark_ended(aws: Aws, folder: Folder, content: Mapping[str, Any], now: float) -> None:
    """Record in queued.json that this start has ended, for a launcher that Batch starts later.  Raises AwsError."""
    if "ended" not in content:
        body = json.dumps({**content, "ended": int(now)}, indent=1)
        aws.call("s3", "PutObject", {"Bucket": folder.bucket, "Key": folder.queued, "Body": body})


def job_in(content: Mapping[str, Any]) -> Job[Ec2Options]:
    """The job that queued.json describes, to be launched.  Raises SettingsError."""
    job = job_of(content)
    regions = tuple(content.get("regions") or job.where.region)
    more = {**content.get("launch", {}), "region": regions, "fetch": False}
    return replace(job, where=job.where.model_copy(update=more))


# ---- stop


def end(aws: Aws, folder: Folder, clock: Clock, say: Say) -> bool:
    """End the job's launcher in a queue, and wait until it has ended; return whether there was one.  Idempotent.

    A launcher that is ended leaves its nodes: remove them afterwards.  Raises AwsError.
    """
    content = retrying(partial(read_queued, aws, folder), clock, say, is_busy)
    if content is None:
        return False
    mark_ended(aws, folder, content, clock.now())
    look = partial(retrying, partial(_living, aws, folder.job), clock, say, is_busy)
    living, until = look(), clock.now() + END_S
    if not living:
        return False
    for launcher in living:
        asked = {"jobId": launcher, "reason": "stopped as requested"}
        retrying(partial(aws.call, "batch", "TerminateJob", asked), clock, say, is_busy)
    say(f"{folder.job} leaves queue {content.get('queue')}")
    while look():
        if clock.now() > until:
            raise AwsError(f"the launcher of {folder.job} still runs; repeat {command('stop', folder.job, aws.region)}")
        clock.sleep(LOOK_EVERY_S)
    return True


def log_of(aws: Aws, found: Queued) -> Iterator[str]:
    """The last lines of the launcher's own log.  Raises AwsError."""
    rows: Sequence[Mapping[str, Any]] = aws.call("batch", "DescribeJobs", {"jobs": [found.id]})["jobs"]
    stream = rows[0].get("container", {}).get("logStreamName") if rows else None
    if stream:
        asked = {"logGroupName": CONTROLLER_LOGS, "logStreamNames": [stream]}
        for event in aws.pages("logs", "FilterLogEvents", "events", asked):
            yield str(event["message"])
