"""The resources of a job, or of all jobs, found by their tags.  Reads only; there is no local database."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.instance.limits import SCHEDULE_GROUP
from launch.core.names import (
    BUCKET_TAG,
    DEADLINE_TAG,
    HOURLY_TAG,
    JOB_TAG,
    OWNER_TAG,
    STARTED_TAG,
    TOOLKIT,
    read_time,
    read_usd,
    tag_values,
)
from launch.ec2.apart import told_apart
from launch.ec2.fleet import LIVE, Fleet, Node, Resource
from launch.ec2.names import GENERATION_TAG, ONCE_TAG, SPEC_TAG, group_name

# Of time limits, of which a job has one.  Any launcher may make millions, for nothing, which would take hours and
# gigabytes to list.  One that is not listed ends by itself, and ends its job all the same.
# https://docs.aws.amazon.com/scheduler/latest/UserGuide/scheduler-quotas.html
MOST_LIMITS = 1000


def find(aws: Aws, job: str | None = None, *, limits: bool = True) -> Fleet:
    """The resources of `job`, or of all jobs.  The number of requests does not grow with the nodes, except by pages.

    limits: also the time limits, which another service than EC2 has.
    """
    filters = _tagged(job)
    found = {
        ("node", "InstanceId"): _instances(aws, job),
        ("volume", "VolumeId"): aws.pages("ec2", "DescribeVolumes", "Volumes", filters),
        ("network-interface", "NetworkInterfaceId"): aws.pages(
            "ec2", "DescribeNetworkInterfaces", "NetworkInterfaces", filters
        ),
        ("security-group", "GroupId"): aws.pages("ec2", "DescribeSecurityGroups", "SecurityGroups", filters),
        ("placement-group", "GroupName"): aws.call("ec2", "DescribePlacementGroups", filters)["PlacementGroups"],
    }
    apart = told_apart(aws, found)
    instances, volumes, interfaces, groups, placements = (ours for ours, _ in apart)
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
        buckets=_buckets(tags),
        foreign=tuple(thing for _, others in apart for thing in others),
        specs=_specs(instances, [*groups, *placements]),
    )


def nodes_of(aws: Aws, job: str, owner: str = "", known: Collection[str] = ()) -> Fleet:
    """Only the nodes of find(), with one request.  owner, known: see told_apart()."""
    ((instances, _),) = told_apart(aws, {("node", "InstanceId"): _instances(aws, job)}, owner, known)
    return Fleet(_in_order(instances))


def nodes_and_volumes(aws: Aws, job: str, owner: str = "") -> Fleet:
    """Only the nodes and volumes of find(), with two requests.  owner: see told_apart()."""
    (instances, _), (volumes, _) = told_apart(
        aws,
        {
            ("node", "InstanceId"): _instances(aws, job),
            ("volume", "VolumeId"): aws.pages("ec2", "DescribeVolumes", "Volumes", _tagged(job)),
        },
        owner,
    )
    return Fleet(_in_order(instances), tuple(_volumes(volumes)))


def _instances(aws: Aws, job: str | None) -> list[Any]:
    reservations = aws.pages("ec2", "DescribeInstances", "Reservations", _tagged(job))
    return [instance for reservation in reservations for instance in reservation["Instances"]]


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
    """The number in a tag; None where nobody can read it."""
    return int(text) if text is not None and re.fullmatch(r"\d{1,6}", text, re.ASCII) else None


def _transition(reason: str) -> datetime | None:
    """The time in 'User initiated (2026-11-21 12:34:56 GMT)', which EC2 gives for a node that stopped or ended."""
    match = re.search(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)", reason)
    return datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) if match else None


def _tagged(job: str | None) -> dict[str, Any]:
    """The filter for resources of `job`, or of any job.  An empty name matches no job."""
    by_tag = {"Name": "tag-key", "Values": [JOB_TAG]} if job is None else {"Name": f"tag:{JOB_TAG}", "Values": [job]}
    return {"Filters": [by_tag]}


def _resource(kind: str, id_key: str, described: Mapping[str, Any]) -> Resource:
    tags = tag_values(described)
    owner = tags.get(OWNER_TAG, "")
    return Resource(kind, described[id_key], tags.get(JOB_TAG, ""), described.get("Status", ""), owner=owner)


def _interfaces(described: Iterable[Mapping[str, Any]], terminated: set[str]) -> list[Resource]:
    """The network interfaces, without those that EC2 deletes with a terminated node."""
    kept = [row for row in described if row.get("Attachment", {}).get("InstanceId", "") not in terminated]
    return [_resource("network-interface", "NetworkInterfaceId", row) for row in kept]


def _placement_groups(described: Iterable[Mapping[str, Any]]) -> list[Resource]:
    kept = [row for row in described if row.get("State") != "deleted"]
    return [_resource("placement-group", "GroupName", row) for row in kept]


def _volumes(described: Iterable[Mapping[str, Any]]) -> list[Resource]:
    """The volumes, without those that EC2 is deleting."""
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
        tag_values(described).get(OWNER_TAG, ""),
    )


def _schedules(aws: Aws, job: str | None) -> list[Resource]:
    """Schedules have no tags; their group is the toolkit's own, and their names contain the job's."""
    prefix = f"{TOOLKIT}-" if job is None else group_name(job)
    try:
        query = {"GroupName": SCHEDULE_GROUP, "NamePrefix": prefix}
        rows = aws.pages("scheduler", "ListSchedules", "Schedules", query, most=MOST_LIMITS)
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


def _specs(instances: Iterable[Mapping[str, Any]], groups: Iterable[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """The digests of job.json, by job, that living nodes and groups carry."""
    living = [instance for instance in instances if instance["State"]["Name"] in LIVE]
    found: dict[str, frozenset[str]] = {}
    for row in [*living, *groups]:
        values = tag_values(row)
        if SPEC_TAG in values and row.get("State") != "deleted":
            found[values[JOB_TAG]] = found.get(values[JOB_TAG], frozenset()) | {values[SPEC_TAG]}
    return found


def _buckets(tags: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The bucket of the job folder, by job."""
    return {values[JOB_TAG]: values[BUCKET_TAG] for values in tags if BUCKET_TAG in values and JOB_TAG in values}
