"""The resources of a job, or of all jobs, found by their tags.  Reads only; there is no local database."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from launch.aws.client import Aws
from launch.aws.instances.requests import SCHEDULE_GROUP
from launch.aws.names import (
    BUCKET_TAG,
    DEADLINE_TAG,
    GENERATION_TAG,
    HOURLY_TAG,
    JOB_TAG,
    ONCE_TAG,
    OWNER_TAG,
    STARTED_TAG,
    TOOLKIT,
    group_name,
    is_ours,
    read_bucket,
    read_time,
    read_usd,
    tag_values,
)
from launch.core.errors import AwsError

# EC2's reasons for ending nodes of an accepted request that it could not start: no capacity, or no volume.
# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html
NO_MACHINE, INTERNAL_ERROR = "Server.InsufficientInstanceCapacity", "Server.InternalError"
NO_START = (NO_MACHINE, INTERNAL_ERROR, "Client.VolumeLimitExceeded", "Client.VolumeInitialization")
# Its reasons for reclaiming spot nodes.
TAKEN_BACK = ("Server.SpotInstanceTermination", "Server.SpotInstanceShutdown")

# AWS lists a terminated instance for about an hour; it is not billed from shutting-down on.
LIVE = ("pending", "running", "stopping", "stopped")


@dataclass(frozen=True)
class Node:
    """One instance of a job."""

    id: str
    job: str
    state: str
    type: str
    zone: str
    address: str
    launched_at: datetime
    generation: int
    spot: bool
    launch_index: int
    subnet: str = ""
    vcpus: int = 0
    reason: str = ""  # why EC2 ended it
    ended_at: datetime | None = None  # None where EC2 does not say
    usd_per_hour: float | None = None  # on demand, by its tag
    usd_once: float = 0.0  # what its start cost, by its tag
    started: datetime | None = None  # when the job was started, by its tag: distinguishes two starts of a job
    owner: str = ""  # aws:userid of the caller who started it, by its tag; for information only

    @property
    def begun(self) -> datetime:
        """When it began to work for its job, which may have taken it over from another one."""
        return max(self.launched_at, self.started or self.launched_at)

    @property
    def lives(self) -> bool:
        return self.state in LIVE


@dataclass(frozen=True)
class Resource:
    """A job's resource other than an instance: a volume, group, network interface or schedule."""

    kind: str
    id: str
    job: str
    state: str = ""
    created: datetime | None = None  # None if AWS does not say
    gib: int = 0
    volume_type: str = ""
    attached_to: tuple[str, ...] = ()
    device: str = ""
    iops: int = 0
    mib_per_s: int = 0
    zone: str = ""
    deleted_with: tuple[str, ...] = ()  # the nodes of attached_to that delete it when they terminate
    tagged_as: str = ""  # the id by which EC2 tags it, if that is not `id`


@dataclass(frozen=True)
class Fleet:
    """All resources of one job or of all jobs."""

    nodes: tuple[Node, ...] = ()
    resources: tuple[Resource, ...] = ()
    started: Mapping[str, datetime] = field(default_factory=dict)  # by job, from the tags, as the next two
    deadlines: Mapping[str, datetime] = field(default_factory=dict)
    buckets: Mapping[str, str] = field(default_factory=dict)

    @property
    def living(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.lives)

    @property
    def present(self) -> tuple[Node, ...]:
        """The nodes that are not terminated: living or shutting down."""
        return tuple(node for node in self.nodes if node.state != "terminated")

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs that have living nodes or other resources."""
        with_nodes = {node.job for node in self.living}
        return tuple(sorted(with_nodes | {resource.job for resource in self.resources}))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left that is billed or blocks a new start."""
        return not self.present and not self.resources

    def of(self, job: str) -> "Fleet":
        """The part that belongs to `job`."""
        return Fleet(
            tuple(node for node in self.nodes if node.job == job),
            tuple(resource for resource in self.resources if resource.job == job),
            self.started,
            self.deadlines,
            self.buckets,
        )

    def kind(self, kind: str) -> tuple[Resource, ...]:
        """The resources of one kind."""
        return tuple(resource for resource in self.resources if resource.kind == kind)

    @property
    def shared_volumes(self) -> tuple[Resource, ...]:
        """The volumes that all nodes of a job read."""
        return tuple(volume for volume in self.kind("volume") if volume.volume_type == "io2")


def find(aws: Aws, job: str | None = None, *, limits: bool = True) -> Fleet:
    """The resources of `job`, or of all jobs.  More nodes take more pages, but not more kinds of requests.

    limits: include the time limits, which are in EventBridge.
    """
    instances, volumes = _instances(aws, job), _volume_rows(aws, job)
    interfaces = _tagged(aws, "DescribeNetworkInterfaces", "NetworkInterfaces", job)
    groups = _tagged(aws, "DescribeSecurityGroups", "SecurityGroups", job)
    placements = _tagged(aws, "DescribePlacementGroups", "PlacementGroups", job)
    terminated = {i["InstanceId"] for i in instances if i["State"]["Name"] == "terminated"}
    resources = _volumes(volumes)
    resources += _interfaces(interfaces, terminated)
    resources += [_resource("security-group", "GroupId", group) for group in groups]
    resources += _placement_groups(placements)
    resources += _schedules(aws, job) if limits else []
    tags = [tag_values(described) for described in [*instances, *volumes, *interfaces, *groups, *placements]]
    return Fleet(
        _in_order(instances),
        tuple(resources),
        started=_latest(tags, STARTED_TAG),
        deadlines=_latest(tags, DEADLINE_TAG),
        buckets={values[JOB_TAG]: name for values in tags if (name := read_bucket(values.get(BUCKET_TAG)))},
    )


def nodes_of(aws: Aws, job: str) -> Fleet:
    """The nodes of find(), with one request."""
    return Fleet(_in_order(_instances(aws, job)))


def nodes_and_volumes(aws: Aws, job: str) -> Fleet:
    """The nodes and volumes of find(), with two requests."""
    return Fleet(_in_order(_instances(aws, job)), tuple(_volumes(_volume_rows(aws, job))))


def find_tagged(aws: Aws, tag: str, value: str) -> Fleet:
    """The nodes and security groups of jobs that also have this tag, with two requests."""
    instances = [row for row in _rows(aws, "DescribeInstances", "Reservations", tag, value) if is_ours(tag_values(row))]
    groups = _rows(aws, "DescribeSecurityGroups", "SecurityGroups", tag, value)
    ours = [group for group in groups if is_ours(tag_values(group))]
    return Fleet(
        _in_order(instances),
        tuple(_resource("security-group", "GroupId", group) for group in ours),
        started=_latest(map(tag_values, [*instances, *ours]), STARTED_TAG),
    )


def _tagged(aws: Aws, operation: str, key: str, job: str | None) -> list[Any]:
    """EC2's rows with the tag of `job`, or of any job for None.  An empty name matches nothing."""
    return _rows(aws, operation, key, JOB_TAG, job)


def _rows(aws: Aws, operation: str, key: str, tag: str, value: str | None) -> list[Any]:
    """EC2's rows with a tag of this value, or of any for None."""
    by_tag = {"Name": "tag-key", "Values": [tag]} if value is None else {"Name": f"tag:{tag}", "Values": [value]}
    rows = aws.pages("ec2", operation, key, {"Filters": [by_tag]})
    if key == "Reservations":
        rows = [instance for reservation in rows for instance in reservation["Instances"]]
    # In EC2's filters, * matches any text.
    return [row for row in rows if value in (None, tag_values(row).get(tag))]


def _instances(aws: Aws, job: str | None) -> list[Any]:
    return _tagged(aws, "DescribeInstances", "Reservations", job)


def _volume_rows(aws: Aws, job: str | None) -> list[Any]:
    return _tagged(aws, "DescribeVolumes", "Volumes", job)


def _in_order(instances: Iterable[Mapping[str, Any]]) -> tuple[Node, ...]:
    nodes = [node(instance) for instance in instances]
    return tuple(sorted(nodes, key=lambda node: (node.generation, node.launch_index, node.id)))


def node(instance: Mapping[str, Any]) -> Node:
    """A Node from EC2's description of an instance."""
    tags, cpu = tag_values(instance), instance.get("CpuOptions", {})
    return Node(
        id=instance["InstanceId"],
        job=tags.get(JOB_TAG, ""),
        state=instance["State"]["Name"],
        type=instance["InstanceType"],
        zone=instance["Placement"]["AvailabilityZone"],
        address=instance.get("PrivateIpAddress", ""),
        launched_at=instance["LaunchTime"],
        generation=_number(tags.get(GENERATION_TAG)) or 1,
        spot=instance.get("InstanceLifecycle") == "spot",
        launch_index=instance.get("AmiLaunchIndex", 0),
        subnet=instance.get("SubnetId", ""),
        vcpus=cpu.get("CoreCount", 0) * cpu.get("ThreadsPerCore", 0),
        reason=instance.get("StateReason", {}).get("Message", ""),
        ended_at=_transition(instance.get("StateTransitionReason", "")),
        usd_per_hour=read_usd(tags.get(HOURLY_TAG)),
        usd_once=read_usd(tags.get(ONCE_TAG)) or 0.0,
        started=read_time(tags.get(STARTED_TAG)),
        owner=tags.get(OWNER_TAG, ""),
    )


def _number(text: str | None) -> int | None:
    """The number in a tag; None if it is not a number."""
    return int(text) if text is not None and re.fullmatch(r"\d{1,6}", text, re.ASCII) else None


def _transition(reason: str) -> datetime | None:
    """The time in 'User initiated (2026-11-21 12:34:56 GMT)', EC2's reason for a stopped or terminated node."""
    match = re.search(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)", reason)
    return datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) if match else None


def _resource(kind: str, id_key: str, described: Mapping[str, Any]) -> Resource:
    return Resource(kind, described[id_key], tag_values(described)[JOB_TAG], described.get("Status", ""))


def _interfaces(described: Iterable[Mapping[str, Any]], terminated: set[str]) -> list[Resource]:
    """The network interfaces, except those that EC2 deletes with a terminated node."""
    kept = [row for row in described if row.get("Attachment", {}).get("InstanceId", "") not in terminated]
    return [_resource("network-interface", "NetworkInterfaceId", row) for row in kept]


def _placement_groups(described: Iterable[Mapping[str, Any]]) -> list[Resource]:
    kept = [row for row in described if row.get("State") != "deleted"]
    groups = [(row, _resource("placement-group", "GroupName", row)) for row in kept]
    return [replace(group, tagged_as=row["GroupId"]) for row, group in groups]


def _volumes(described: Iterable[Mapping[str, Any]]) -> list[Resource]:
    """The volumes, except those that EC2 is deleting."""
    return [_volume(row) for row in described if row["State"] != "deleting"]


def _volume(described: Mapping[str, Any]) -> Resource:
    attachments: Sequence[Mapping[str, Any]] = described.get("Attachments", ())
    return Resource(
        "volume",
        described["VolumeId"],
        tag_values(described).get(JOB_TAG, ""),
        described["State"],
        described.get("CreateTime"),
        described["Size"],
        described.get("VolumeType", ""),
        tuple(attachment["InstanceId"] for attachment in attachments),
        attachments[0]["Device"] if attachments else "",
        described.get("Iops", 0),
        described.get("Throughput", 0),
        described["AvailabilityZone"],
        tuple(a["InstanceId"] for a in attachments if a.get("DeleteOnTermination")),
    )


def _schedules(aws: Aws, job: str | None) -> list[Resource]:
    """The time limits.  Schedules have no tags: they are in the toolkit's group, and named after the job."""
    prefix = f"{TOOLKIT}-" if job is None else group_name(job)
    try:
        query = {"GroupName": SCHEDULE_GROUP, "NamePrefix": prefix}
        rows = aws.pages("scheduler", "ListSchedules", "Schedules", query)
    except AwsError as error:
        if error.aws_code == "ResourceNotFoundException":  # no job was ever started here
            return []
        raise
    schedules = [
        Resource(
            "schedule", r["Name"], r["Name"].removeprefix(f"{TOOLKIT}-"), r.get("State", ""), r.get("CreationDate")
        )
        for r in rows
    ]
    return [schedule for schedule in schedules if job is None or schedule.job == job]


def _latest(tags: Iterable[Mapping[str, str]], key: str) -> dict[str, datetime]:
    """The latest time under `key`, by job."""
    times: dict[str, datetime] = {}
    for values in tags:
        job, time = values.get(JOB_TAG), read_time(values.get(key))
        if job is not None and time is not None:
            times[job] = max(time, times.get(job, time))
    return times
