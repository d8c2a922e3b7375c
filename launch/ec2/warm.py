"""Warm nodes: those of an ended job with --keep-warm, which wait for a next job with the same machines.

Such a node looks for the next job's boot script, at next_key(), and becomes a node of that job: see stay_warm() in
infra/ec2/boot.sh.  S3 lets only one job write the script.  That job then gives its tags to the nodes and all that is
theirs, so that every command finds them as if it had started them.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from launch.aws.client import Aws
from launch.aws.instances.inventory import Fleet, find
from launch.aws.instances.requests import GONE, deletion
from launch.aws.lookup import spec_of
from launch.aws.names import GENERATION_TAG, ONCE_TAG, Folder, group_name
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.plan import Request, put_once
from launch.ec2.backend import BACKEND_NAME
from launch.ec2.facts import WarmNodes, next_key
from launch.ec2.job_folder import exit_records, start_of
from launch.ec2.options import Ec2Options
from launch.ec2.requests import Cluster, spec, user_data
from trainer.errors import SettingsError

# Nodes that end themselves sooner than this are left alone.
LEAST = timedelta(minutes=1)
AWAIT_S, LOOK_EVERY_S = 60.0, 5.0
MOST_TAGGED = 1000  # https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateTags.html
# Settings that do not concern the machines: in these, two jobs on the same nodes may differ.
OF_THE_TRAINING = {"keep_warm", "max_hours", "max_restarts", "nproc_per_node", "secret"}
TAKEN = "WarmNodesTaken"  # the toolkit's error code if another job has claimed the nodes
# Errors after which the job starts nodes of its own: others were faster, or the nodes' time was over.
LOST = (TAKEN, *GONE, "InvalidID", "InvalidSecurityGroupID.NotFound")


def warm_until(own: Fleet, exits: Mapping[str, Mapping[str, Any]]) -> datetime | None:
    """When the first of a job's nodes ends itself; None unless all of them wait for a next job.  Pure."""
    times = [exits.get(node.id, {}).get("warm_until", 0) for node in own.living]
    return datetime.fromtimestamp(min(times), UTC) if times and min(times) else None


def find_warm(aws: Aws, fleet: Fleet, options: Ec2Options, now: datetime) -> tuple[WarmNodes, ...]:
    """The warm nodes that are as many as `options` says, and of its types.  fleet: of all jobs.

    Reads the folders of jobs with such nodes only.
    """
    found = [warm_nodes(aws, fleet.of(job), job) for job in fleet.jobs if _is_alike(fleet.of(job), options)]
    return tuple(warm for warm in found if warm is not None and _is_left(warm, now) and warm.until - now > LEAST)


def _is_left(warm: WarmNodes, now: datetime) -> bool:
    """Whether the launcher of their job, which may end them until it knows that they are warm, has left them."""
    began = warm.until - timedelta(minutes=warm.spec["where"]["keep_warm"])
    return "ended" in warm.spec or now - began > timedelta(seconds=AWAIT_S)


def _is_alike(own: Fleet, options: Ec2Options) -> bool:
    are_right = [node.state == "running" and node.type in options.instance_type for node in own.living]
    return len(are_right) == options.nodes and all(are_right) and len({node.type for node in own.living}) == 1


def await_warm(aws: Aws, job: str, nodes: int, clock: Clock) -> WarmNodes | None:
    """The nodes of `job` once all of them wait for a next job; None if one of them does not.

    After a failure, other nodes may need a moment to fail, too.
    """
    until = clock.now() + AWAIT_S
    while True:
        own = find(aws, job)
        warm = warm_nodes(aws, own, job)
        if len(own.living) < nodes or warm is not None or clock.now() >= until:
            return warm if len(own.living) == nodes else None
        clock.sleep(LOOK_EVERY_S)


def warm_nodes(aws: Aws, own: Fleet, job: str) -> WarmNodes | None:
    """The nodes of `job` if they are warm.  own: its resources."""
    if job not in own.buckets:
        return None
    folder = Folder(own.buckets[job], job)
    try:
        known = spec_of(aws, folder, BACKEND_NAME)
    except SettingsError:
        return None
    started = start_of(known or {})
    if known is None or started is None or not known["where"].get("keep_warm"):
        return None
    until = warm_until(own, exit_records(aws, folder))
    if until is None:
        return None
    return WarmNodes(folder, own, known, until, aws.read(folder.bucket, next_key(folder, started)))


def fits(cluster: Cluster, warm: WarmNodes) -> bool:
    """Whether the job may start on these nodes: they are what it would start, and no other job has claimed them."""
    return (
        warm.job != cluster.job
        and _machines(spec(cluster)) == _machines(warm.spec)
        and bool(cluster.resolved.options.security_group or warm.fleet.kind("security-group"))
        and len(_ids(warm.fleet)) <= MOST_TAGGED
        and warm.claim in (None, _script(cluster, warm))
    )


def _machines(of: Mapping[str, object]) -> dict[str, object]:
    """What of a job.json says which machines the job has."""
    where = of["where"]
    assert isinstance(where, Mapping)
    same = {name: value for name, value in where.items() if name not in OF_THE_TRAINING}
    return {"where": same, **{name: of.get(name) for name in ("region", "image", "ami", "snapshot")}}


def take_over(cluster: Cluster, warm: WarmNodes) -> list[Request]:
    """The requests that make the nodes those of this job, whose time limit exists already."""
    started = start_of(warm.spec)
    assert started is not None
    key = next_key(warm.folder, started)
    why = f"take over the {len(warm.fleet.living)} warm nodes of {warm.job}"
    claim = put_once(warm.folder.bucket, key, _script(cluster, warm), why)
    # Counted for that job already, or for this one only from now on.
    own = [{"Key": GENERATION_TAG, "Value": "1"}, {"Key": ONCE_TAG, "Value": "0"}]
    tags = {"Resources": _ids(warm.fleet), "Tags": [*cluster.tags, *own]}
    test = Request(
        "ec2", "CreateTags", {**tags, "DryRun": True}, "check that these credentials may tag them", ("DryRunOperation",)
    )
    return [
        test,
        replace(claim, taken=TAKEN, if_taken="Another job has taken these nodes over."),
        Request("ec2", "CreateTags", tags, "tag them, and all that is theirs, as this job's"),
        deletion("schedule", group_name(warm.job), f"delete the time limit of {warm.job}"),
    ]


def _script(cluster: Cluster, warm: WarmNodes) -> bytes:
    instance = next(one for one in cluster.resolved.instances if one.name == warm.fleet.living[0].type)
    return user_data(cluster, instance).encode()


def _ids(fleet: Fleet) -> list[str]:
    """All that carries the job's tags."""
    tagged = [one.tagged_as or one.id for one in fleet.resources if one.kind != "schedule"]
    return [*(node.id for node in fleet.living), *tagged]


def end_claimed(aws: Aws, cluster: Cluster) -> None:
    """End warm nodes that this job has claimed and that do not have its tags yet.  Raises AwsError."""
    warm = cluster.warm
    started = start_of(warm.spec) if warm else None
    if warm is None or started is None:
        return
    if aws.read(warm.folder.bucket, next_key(warm.folder, started)) == _script(cluster, warm):
        claimed = {node.id for node in warm.fleet.living}
        ids = [node.id for node in find(aws, warm.job).living if node.id in claimed]
        if ids:
            aws.call("ec2", "TerminateInstances", {"InstanceIds": ids})


def is_lost(error: AwsError, cluster: Cluster) -> bool:
    """Whether the warm nodes that the job was to start on are no longer there for it."""
    return cluster.warm is not None and error.aws_code in LOST
