"""What the account has of a job, or of all jobs, found by tags.  Reads only; the tags are the only truth."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.names import BUCKET_TAG, DEADLINE_TAG, JOB_TAG, STARTED_TAG, TOOLKIT, read_time, tag_values
from launch.ec2.names import GENERATION_TAG, SCHEDULE_GROUP, group_name

# AWS shows a terminated instance for about an hour; it costs nothing from shutting-down on.
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
    started: datetime | None = None  # the start of the job that it belongs to, as its tag says

    @property
    def lives(self) -> bool:
        return self.state in LIVE


@dataclass(frozen=True)
class Thing:
    """Anything else of a job: a volume, group, schedule.  created: None where AWS does not say."""

    kind: str
    id: str
    job: str
    state: str = ""
    created: datetime | None = None
    gib: int = 0
    volume_type: str = ""
    attached_to: tuple[str, ...] = ()
    device: str = ""
    iops: int = 0
    mib_per_s: int = 0
    zone: str = ""
    goes_with: tuple[str, ...] = ()  # the nodes of attached_to that delete it when they end


@dataclass(frozen=True)
class Fleet:
    """All that carries the toolkit's tag, of one job or of all."""

    nodes: tuple[Node, ...] = ()
    things: tuple[Thing, ...] = ()
    started: Mapping[str, datetime] = field(default_factory=dict)  # by job, as the next two
    deadlines: Mapping[str, datetime] = field(default_factory=dict)
    buckets: Mapping[str, str] = field(default_factory=dict)

    @property
    def living(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.lives)

    @property
    def ending(self) -> tuple[Node, ...]:
        """The nodes that are not gone yet: living or shutting down."""
        return tuple(node for node in self.nodes if node.state != "terminated")

    @property
    def jobs(self) -> tuple[str, ...]:
        return tuple(sorted({node.job for node in self.living} | {thing.job for thing in self.things}))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left that costs money or stands in the way."""
        return not self.ending and not self.things

    def of(self, job: str) -> "Fleet":
        """The part that belongs to `job`."""
        return Fleet(
            tuple(node for node in self.nodes if node.job == job),
            tuple(thing for thing in self.things if thing.job == job),
            self.started,
            self.deadlines,
            self.buckets,
        )

    def kind(self, kind: str) -> tuple[Thing, ...]:
        """The things of one kind."""
        return tuple(thing for thing in self.things if thing.kind == kind)


def find(aws: Aws, job: str | None = None) -> Fleet:
    """What there is now.  The same number of requests for any number of nodes, but for paging."""
    filters = _tagged(job)
    instances = _instances(aws, job)
    volumes = aws.pages("ec2", "DescribeVolumes", "Volumes", filters)
    interfaces = aws.pages("ec2", "DescribeNetworkInterfaces", "NetworkInterfaces", filters)
    groups = aws.pages("ec2", "DescribeSecurityGroups", "SecurityGroups", filters)
    placements = aws.call("ec2", "DescribePlacementGroups", filters)["PlacementGroups"]
    dead = {i["InstanceId"] for i in instances if i["State"]["Name"] == "terminated"}
    things = [
        *(_volume(v) for v in volumes if v["State"] != "deleting"),
        *(_thing("network-interface", "NetworkInterfaceId", i) for i in interfaces if _owner(i) not in dead),
        *(_thing("security-group", "GroupId", g) for g in groups),
        *(_thing("placement-group", "GroupName", p) for p in placements if p.get("State") != "deleted"),
        *_schedules(aws, job),
    ]
    tagged = [tag_values(resource) for resource in [*instances, *volumes, *interfaces, *groups, *placements]]
    return Fleet(
        _in_order(instances),
        tuple(things),
        _times(tagged, STARTED_TAG),
        _times(tagged, DEADLINE_TAG),
        {values[JOB_TAG]: values[BUCKET_TAG] for values in tagged if BUCKET_TAG in values and JOB_TAG in values},
    )


def nodes_of(aws: Aws, job: str) -> tuple[Node, ...]:
    """The nodes of find(), by one request."""
    return _in_order(_instances(aws, job))


def _instances(aws: Aws, job: str | None) -> list[Any]:
    return [i for r in aws.pages("ec2", "DescribeInstances", "Reservations", _tagged(job)) for i in r["Instances"]]


def _in_order(instances: Iterable[Mapping[str, Any]]) -> tuple[Node, ...]:
    return tuple(sorted((node(i) for i in instances), key=lambda n: (n.generation, n.launch_index, n.id)))


def node(instance: Mapping[str, Any]) -> Node:
    """A Node from how EC2 describes it."""
    tagged, cpu = tag_values(instance), instance.get("CpuOptions", {})
    return Node(
        id=instance["InstanceId"],
        job=tagged.get(JOB_TAG, ""),
        state=instance["State"]["Name"],
        type=instance["InstanceType"],
        zone=instance["Placement"]["AvailabilityZone"],
        address=instance.get("PrivateIpAddress", ""),
        launched_at=instance["LaunchTime"],
        generation=int(tagged.get(GENERATION_TAG, "1")),
        spot=instance.get("InstanceLifecycle") == "spot",
        launch_index=instance.get("AmiLaunchIndex", 0),
        subnet=instance.get("SubnetId", ""),
        vcpus=cpu.get("CoreCount", 0) * cpu.get("ThreadsPerCore", 0),
        reason=instance.get("StateReason", {}).get("Message", ""),
        ended_at=_transition(instance.get("StateTransitionReason", "")),
        started=read_time(tagged[STARTED_TAG]) if STARTED_TAG in tagged else None,
    )


def _transition(reason: str) -> datetime | None:
    """The time in 'User initiated (2026-11-21 12:34:56 GMT)', which EC2 gives for a node that stopped or ended."""
    found = re.search(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)", reason)
    return datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) if found else None


def _tagged(job: str | None) -> dict[str, Any]:
    """The filter for what belongs to `job`, or to any.  An empty name is the name of no job."""
    by_tag = {"Name": "tag-key", "Values": [JOB_TAG]} if job is None else {"Name": f"tag:{JOB_TAG}", "Values": [job]}
    return {"Filters": [by_tag]}


def _owner(interface: Mapping[str, Any]) -> str:
    return str(interface.get("Attachment", {}).get("InstanceId", ""))


def _thing(kind: str, id_key: str, described: Mapping[str, Any]) -> Thing:
    return Thing(kind, described[id_key], tag_values(described).get(JOB_TAG, ""), described.get("Status", ""))


def _volume(described: Mapping[str, Any]) -> Thing:
    attachments: Sequence[Mapping[str, Any]] = described.get("Attachments", ())
    return Thing(
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


def _schedules(aws: Aws, job: str | None) -> list[Thing]:
    """Schedules carry no tags; their group is the toolkit's own, and their names hold the job's."""
    prefix = f"{TOOLKIT}-" if job is None else group_name(job)
    try:
        found = aws.pages(
            "scheduler", "ListSchedules", "Schedules", {"GroupName": SCHEDULE_GROUP, "NamePrefix": prefix}
        )
    except AwsError as error:
        if error.aws_code == "ResourceNotFoundException":  # nothing was ever started here
            return []
        raise
    things = [
        Thing("schedule", s["Name"], s["Name"].removeprefix(f"{TOOLKIT}-"), s.get("State", ""), s.get("CreationDate"))
        for s in found
    ]
    return [thing for thing in things if job is None or thing.job == job]


def _times(tagged: Iterable[Mapping[str, str]], key: str) -> dict[str, datetime]:
    """The latest time under `key`, by job."""
    times: dict[str, datetime] = {}
    for values in tagged:
        if key in values and JOB_TAG in values:
            moment, job = read_time(values[key]), values[JOB_TAG]
            times[job] = max(moment, times.get(job, moment))
    return times
