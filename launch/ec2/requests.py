"""The requests around an EC2 job's nodes, one function each: files, time limit, groups.

Pure; planner.py orders them.  The nodes are in machines.py.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from launch.core.names import SWEEPER_DOCUMENT, Folder, tags
from launch.core.plan import FromAnswer, Request
from launch.core.price import CATALOGS, Prices
from launch.core.published import Content
from launch.ec2.facts import Ami, Snapshot
from launch.ec2.names import BACKEND_NAME, LOG_GROUP, SCHEDULE_GROUP, SPEC_TAG, group_name
from launch.ec2.resolved import Resolved
from launch.ec2.vouched import digest

RETENTION_DAYS = 90
# EC2's errors for what it made a moment ago.
NOT_YET = ("InvalidGroup.NotFound", "InvalidPlacementGroup.Unknown", "InvalidVolume.NotFound",
           "InvalidInstanceID.NotFound")  # fmt: skip
GRACE = timedelta(minutes=5)
GRACE_MINUTES = "GraceMinutes"  # the parameter of the sweeper's document in infra/cloudformation/account.yaml


@dataclass(frozen=True)
class Cluster:
    """Everything that the requests of a job are made of; a value that is not known yet is a text in <>."""

    job: str
    region: str
    resolved: Resolved
    folder: Folder
    image: str
    registry: str  # to log in to; empty for none
    ami: Ami
    snapshot: Snapshot | None
    scheduler_role: str
    started: datetime
    deadline: datetime
    train: tuple[str, ...]
    security_group: str | FromAnswer
    prices: Prices = CATALOGS
    owner: str = ""  # aws:userid of who launches
    downloads: bool = False  # whether the training fetches its data from the internet
    content: Content | None = None  # of its data, where they are counted

    @property
    def nodes(self) -> int:
        return self.resolved.options.nodes

    @property
    def tags(self) -> list[dict[str, str]]:
        ours = tags(self.job, self.folder.bucket, self.started, self.deadline, self.owner)
        return [*ours, {"Key": SPEC_TAG, "Value": digest(spec(self))}]


# Options that may differ between two starts of one job, and those with a key of their own in job.json.
NOT_THE_JOB = {"wait", "wait_for_capacity", "detach", "max_usd", "max_nodes", "job_name", "region"}


def spec(cluster: Cluster) -> dict[str, Any]:
    """job.json: the settings, by which a second start recognizes its job."""
    options = cluster.resolved.options.model_dump(mode="json", exclude=NOT_THE_JOB)
    regions = list(cluster.resolved.options.region)  # those in which the job may be
    return {
        "job": cluster.job,
        "backend": BACKEND_NAME,
        "region": cluster.region,
        "where": options,
        "train": list(cluster.train),
        # For restarts, as newer ones may have appeared by then.
        "image": cluster.image,
        "ami": cluster.ami.id,
        "snapshot": cluster.snapshot.id if cluster.snapshot else None,
        "started": int(cluster.started.timestamp()),
        "deadline": int(cluster.deadline.timestamp()),
        "prices": {**asdict(cluster.prices), "usd_per_hour": dict(cluster.prices.usd_per_hour)},
        **({"regions": regions} if len(regions) > 1 else {}),
    }


def put_spec(cluster: Cluster) -> Request:
    return _put(cluster.folder, cluster.folder.spec, spec(cluster), "save the settings")


def put_roster(folder: Folder, content: Mapping[str, Any]) -> Request:
    return _put(folder, folder.cluster, content, "give the nodes each other's addresses, by rank")


def _put(folder: Folder, key: str, content: Mapping[str, Any], why: str) -> Request:
    body = json.dumps(content, indent=1, default=str)
    params = {"Bucket": folder.bucket, "Key": key, "Body": body, "ContentType": "application/json"}
    return Request("s3", "PutObject", params, why)


def log_group(retention: bool) -> list[Request]:
    """The requests for the log group of all jobs; it is kept, with the logs."""
    name = {"logGroupName": LOG_GROUP}
    requests = [
        Request("logs", "CreateLogGroup", name, "create the log group", ("ResourceAlreadyExistsException",)),
        Request("logs", "PutRetentionPolicy", {**name, "retentionInDays": RETENTION_DAYS}, "set its retention"),
    ]
    return requests if retention else requests[:1]


def time_limit(cluster: Cluster, exists: bool) -> list[Request]:
    """The requests for the time limit that works even if the nodes' own timers fail.  Made before anything is billed.

    It ends what is past the deadline in its tags, so it includes nodes that are started later.  It names no nodes: AWS
    lets a launcher write any target into a schedule, and the schedule's role must not be a way to end others' nodes.
    """
    automation = {"DocumentName": SWEEPER_DOCUMENT, "Parameters": {GRACE_MINUTES: ["0"]}}
    schedule = {
        "Name": group_name(cluster.job),
        "GroupName": SCHEDULE_GROUP,
        # Later than the nodes' own timers.
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
        "create the schedule group",
        ("ConflictException",),
    )
    why = "terminate the nodes of the job at its time limit"
    if exists:
        return [Request("scheduler", "UpdateSchedule", schedule, why)]
    # The group has only just been created.
    not_yet = ("ResourceNotFoundException",)
    return [group, Request("scheduler", "CreateSchedule", schedule, why, ("ConflictException",), retry_after=not_yet)]


def security_group(cluster: Cluster, vpc: str) -> list[Request]:
    """The requests for a group that allows traffic among its members, and HTTPS out."""
    group = FromAnswer("security group", "GroupId")
    create = Request(
        "ec2",
        "CreateSecurityGroup",
        {
            "GroupName": group_name(cluster.job),
            "Description": f"nodes of {cluster.job}: each other, and HTTPS out",
            "VpcId": vpc,
            "TagSpecifications": [{"ResourceType": "security-group", "Tags": cluster.tags}],
        },
        "create a security group for the nodes",
        name="security group",
    )
    return [create, *security_rules(group)]


def security_rules(group: str | FromAnswer) -> list[Request]:
    """The requests for its rules: inbound only from the group itself, all protocols as EFA needs; HTTPS outbound."""
    itself = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    everywhere = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    https = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    exists = ("InvalidPermission.Duplicate",)

    def rule(operation: str, permissions: Sequence[Any], why: str, done_already: tuple[str, ...]) -> Request:
        params = {"GroupId": group, "IpPermissions": permissions}
        return Request("ec2", operation, params, why, done_already, retry_after=NOT_YET)

    return [
        rule("AuthorizeSecurityGroupIngress", itself, "inbound: only among the nodes", exists),
        rule("AuthorizeSecurityGroupEgress", [*itself, https], "outbound: among the nodes, and HTTPS", exists),
        rule("RevokeSecurityGroupEgress", everywhere, "remove the allow-all rule", ("InvalidPermission.NotFound",)),
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
        "place the nodes close together",
        ("InvalidPlacementGroup.Duplicate",),
    )
