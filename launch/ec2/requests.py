"""The requests around an EC2 job's nodes, one function each: files, time limit, groups.

Pure; planner.py orders them.  The nodes are in machines.py.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from launch.aws import machines, upload
from launch.aws.names import Folder, tags
from launch.core.manifest import Content
from launch.core.price import CATALOGS, Prices
from launch.core.steps import FromAnswer, Request, unless_changed
from launch.core.training.base import Training
from launch.ec2.facts import Ami, Snapshot
from launch.ec2.names import BACKEND_NAME, LOG_GROUP, group_name
from launch.ec2.resolved import Resolved

RETENTION_DAYS = 90


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
    train: Training  # as it runs on the nodes
    security_group: str | FromAnswer
    prices: Prices = CATALOGS
    owner: str = ""  # aws:userid of who launches
    downloads: bool = False  # whether the training fetches its data from the internet
    content: Content | None = None  # of its data, where they are counted

    @property
    def nodes(self) -> int:
        return self.resolved.options.nodes

    @property
    def source_key(self) -> str:
        """Where the source of a script is in the bucket; empty without one."""
        return upload.key_of(self.train.digest, self.started) if self.train.digest else ""

    @property
    def tags(self) -> list[dict[str, str]]:
        return tags(self.job, self.folder.bucket, self.started, self.deadline, self.owner)


NAME_TAKEN = "NameTaken"  # our code for a job.json that another command has written since this one looked

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
        "train": list(cluster.train.words),
        # For restarts, as newer ones may have appeared by then.
        "image": cluster.image,
        "ami": cluster.ami.id,
        "snapshot": cluster.snapshot.id if cluster.snapshot else None,
        "started": int(cluster.started.timestamp()),
        "deadline": int(cluster.deadline.timestamp()),
        "prices": {**asdict(cluster.prices), "usd_per_hour": dict(cluster.prices.usd_per_hour)},
        **({"regions": regions} if len(regions) > 1 else {}),
    }


def is_saved(cluster: Cluster, known: Mapping[str, Any] | None) -> bool:
    """Whether `known`, which was read as job.json, says all of it.

    It is not written again then: a stop may have noted the end there since, which would be lost.
    """
    return known is not None and known == json.loads(json.dumps(spec(cluster), default=str))


def put_spec(cluster: Cluster, known_as: str) -> Request:
    """Takes the job's name, as one of several launches that begin at once.  known_as: see unless_changed()."""
    return put_version(cluster.folder, spec(cluster), known_as, "save the settings")


def put_version(folder: Folder, content: Mapping[str, Any], known_as: str, why: str) -> Request:
    """Writes job.json, unless another command has meanwhile.  known_as: see unless_changed()."""
    put = _put(folder, folder.spec, content, why)
    return replace(unless_changed(put, known_as), taken=NAME_TAKEN)


def put_cluster_file(folder: Folder, content: Mapping[str, Any]) -> Request:
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
    """The requests for the job's time limit."""
    return machines.time_limit(group_name(cluster.job), cluster.deadline, cluster.scheduler_role, exists=exists)


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
    itself = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
    return [
        machines.inbound(group, [itself], "inbound: only among the nodes"),
        machines.outbound(group, [itself, machines.HTTPS], "outbound: among the nodes, and HTTPS"),
        *machines.nothing_else_out(group),
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
