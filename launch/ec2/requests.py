"""The requests around an EC2 job's machines, one function each: what is written down, what guards, what they share.

Pure; planner.py puts them in order.  The machines are in machines.py.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from launch.core.names import JOB_TAG, Folder, tags
from launch.core.plan import FromAnswer, Request
from launch.ec2.checks import Resolved
from launch.ec2.facts import Ami, Snapshot
from launch.ec2.names import BACKEND, LOG_GROUP, SCHEDULE_GROUP, group_name

RETENTION_DAYS = 90
# What EC2 says of a group that it made a moment ago.
NOT_YET = ("InvalidGroup.NotFound", "InvalidPlacementGroup.Unknown")
GRACE = timedelta(minutes=5)


@dataclass(frozen=True)
class Cluster:
    """Everything about a job that its requests are made of; what is not known yet is a text in <>."""

    job: str
    region: str
    resolved: Resolved
    folder: Folder
    image: str
    registry: str  # to log in to, or empty
    ami: Ami
    snapshot: Snapshot | None
    scheduler_role: str
    started: datetime
    deadline: datetime
    train: tuple[str, ...]
    security_group: str | FromAnswer

    @property
    def nodes(self) -> int:
        return self.resolved.options.nodes

    @property
    def tags(self) -> list[dict[str, str]]:
        return tags(self.job, self.folder.bucket, self.started, self.deadline)


# Options that may differ between two starts of one job, and those that have a place of their own in job.json.
NOT_THE_JOB = {"wait", "detach", "max_usd", "max_nodes", "job_name", "region"}


def spec(cluster: Cluster) -> dict[str, Any]:
    """job.json: what was asked for, so that a second start can tell whether it is the same job."""
    options = cluster.resolved.options.model_dump(mode="json", exclude=NOT_THE_JOB)
    return {
        "job": cluster.job,
        "backend": BACKEND,
        "region": cluster.region,
        "where": options,
        "train": list(cluster.train),
        # What a restart shall find again, though the newest of each may be another by then.
        "image": cluster.image,
        "ami": cluster.ami.id,
        "snapshot": cluster.snapshot.id if cluster.snapshot else None,
        "started": int(cluster.started.timestamp()),
        "deadline": int(cluster.deadline.timestamp()),
    }


def put_spec(cluster: Cluster) -> Request:
    return _put(cluster.folder, cluster.folder.spec, spec(cluster), "write down what was asked for")


def put_cluster(folder: Folder, content: Mapping[str, Any]) -> Request:
    return _put(folder, folder.cluster, content, "tell the nodes of each other: addresses in rank order")


def _put(folder: Folder, key: str, content: Mapping[str, Any], why: str) -> Request:
    body = json.dumps(content, indent=1, default=str)
    params = {"Bucket": folder.bucket, "Key": key, "Body": body, "ContentType": "application/json"}
    return Request("s3", "PutObject", params, why)


def log_group(retention: bool) -> list[Request]:
    """The group that the nodes' logs go to; it stays, and so do the logs."""
    name = {"logGroupName": LOG_GROUP}
    requests = [
        Request("logs", "CreateLogGroup", name, "a place for the logs", ("ResourceAlreadyExistsException",)),
        Request("logs", "PutRetentionPolicy", {**name, "retentionInDays": RETENTION_DAYS}, "which keeps them a while"),
    ]
    return requests if retention else requests[:1]


def time_limit(cluster: Cluster, exists: bool) -> list[Request]:
    """The limit that holds even if the nodes' own timers fail.  Made before anything costs money.

    It goes by the job's tag, so it also covers nodes that are started later.
    """
    automation = {
        "DocumentName": "AWS-TerminateEC2Instance",
        "TargetParameterName": "InstanceId",
        "Targets": [{"Key": f"tag:{JOB_TAG}", "Values": [cluster.job]}],
        "MaxConcurrency": "100%",
        "MaxErrors": "100%",
        "Parameters": {"AutomationAssumeRole": [cluster.scheduler_role]},
    }
    schedule = {
        "Name": group_name(cluster.job),
        "GroupName": SCHEDULE_GROUP,
        # The nodes' own timers come first.
        "ScheduleExpression": f"at({cluster.deadline + GRACE:%Y-%m-%dT%H:%M:%S})",
        "ScheduleExpressionTimezone": "UTC",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE",
        "Target": {
            "Arn": "arn:aws:scheduler:::aws-sdk:ssm:startAutomationExecution",
            "RoleArn": cluster.scheduler_role,
            "Input": json.dumps(automation),
        },
    }
    group = Request(
        "scheduler",
        "CreateScheduleGroup",
        {"Name": SCHEDULE_GROUP, "Tags": [{"Key": SCHEDULE_GROUP, "Value": "time limits"}]},
        "a place for time limits",
        ("ConflictException",),
    )
    why = "end all nodes of the job at its time limit, whoever is still there then"
    if exists:
        return [Request("scheduler", "UpdateSchedule", schedule, why)]
    return [group, Request("scheduler", "CreateSchedule", schedule, why, ("ConflictException",))]


def security_group(cluster: Cluster, vpc: str) -> list[Request]:
    """A group that lets in nobody but its own members, and out to HTTPS."""
    made = FromAnswer("security group", "GroupId")
    create = Request(
        "ec2",
        "CreateSecurityGroup",
        {
            "GroupName": group_name(cluster.job),
            "Description": f"nodes of {cluster.job}: each other, and HTTPS out",
            "VpcId": vpc,
            "TagSpecifications": [{"ResourceType": "security-group", "Tags": cluster.tags}],
        },
        "a security group for the nodes",
        name="security group",
    )
    return [create, *security_rules(made)]


def security_rules(group: str | FromAnswer) -> list[Request]:
    """Nothing inbound but from the group itself, all protocols as EFA wants them; HTTPS outbound."""
    itself = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    everywhere = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    https = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    there = ("InvalidPermission.Duplicate",)

    def rule(operation: str, permissions: Sequence[Any], why: str, done_already: tuple[str, ...]) -> Request:
        params = {"GroupId": group, "IpPermissions": permissions}
        return Request("ec2", operation, params, why, done_already, retry_after=NOT_YET)

    return [
        rule("AuthorizeSecurityGroupIngress", itself, "in: only from each other", there),
        rule("AuthorizeSecurityGroupEgress", [*itself, https], "out: to each other, and HTTPS", there),
        rule("RevokeSecurityGroupEgress", everywhere, "and nothing else", ("InvalidPermission.NotFound",)),
    ]


def placement_group(cluster: Cluster) -> Request:
    return Request(
        "ec2",
        "CreatePlacementGroup",
        {
            "GroupName": group_name(cluster.job),
            "Strategy": "cluster",
            "TagSpecifications": [{"ResourceType": "placement-group", "Tags": cluster.tags}],
        },
        "put the nodes next to each other",
        ("InvalidPlacementGroup.Duplicate",),
    )
