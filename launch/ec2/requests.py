"""The requests of an EC2 job, one function each.  Pure; planner.py puts them in order."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from launch.catalog import Instance
from launch.ec2.checks import Settled, data_volume, io2_volume
from launch.ec2.facts import Ami, Snapshot, Subnet
from launch.ec2.names import (
    DATA_DEVICE,
    GENERATION_TAG,
    JOB_TAG,
    LOG_GROUP,
    SCHEDULE_GROUP,
    Folder,
    client_token,
    group_name,
    tags,
)
from launch.plan import Late, Request
from launch.templates import fill

RETENTION_DAYS = 90
# What EC2 says of a group that it made a moment ago.
NOT_YET = ("InvalidGroup.NotFound", "InvalidPlacementGroup.Unknown")
GRACE = timedelta(minutes=5)
HOP_LIMIT = 2  # also a container with a network of its own reaches the metadata service
# Quota "EBS: provisioned rate for volume initialization" of a region, and what one volume may ask of it, in MiB/s.
INITIALIZATION_QUOTA, INITIALIZATION_RANGE = 5000, (100, 300)


@dataclass(frozen=True)
class Cluster:
    """Everything about a job that its requests are made of; what is not known yet is a text in <>."""

    job: str
    region: str
    settled: Settled
    folder: Folder
    image: str
    registry: str  # to log in to, or empty
    ami: Ami
    snapshot: Snapshot | None
    scheduler_role: str
    started: datetime
    deadline: datetime
    train: tuple[str, ...]
    security_group: str | Late

    @property
    def nodes(self) -> int:
        return self.settled.options.nodes

    @property
    def tags(self) -> list[dict[str, str]]:
        return tags(self.job, self.folder.bucket, self.started, self.deadline)


# Options that may differ between two starts of one job, and those that have a place of their own in job.json.
NOT_THE_JOB = {"wait", "detach", "max_usd", "max_nodes", "job_name", "region"}


def spec(cluster: Cluster) -> dict[str, Any]:
    """job.json: what was asked for, so that a second start can tell whether it is the same job."""
    options = cluster.settled.options.model_dump(mode="json", exclude=NOT_THE_JOB)
    return {
        "job": cluster.job,
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
    made = Late("security group", "GroupId")
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


def security_rules(group: str | Late) -> list[Request]:
    """Nothing inbound but from the group itself, all protocols as EFA wants them; HTTPS outbound."""
    itself = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    everywhere = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    https = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    there = ("InvalidPermission.Duplicate",)

    def rule(operation: str, permissions: Sequence[Any], why: str, settled_by: tuple[str, ...]) -> Request:
        params = {"GroupId": group, "IpPermissions": permissions}
        return Request("ec2", operation, params, why, settled_by, again_after=NOT_YET)

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


def run_instances(cluster: Cluster, instance: Instance, subnet: Subnet, count: int, generation: int) -> Request:
    """All missing nodes or none of them, in one zone, with their volumes and tags."""
    options, tagged = cluster.settled.options, cluster.tags
    # Everything that may differ between two requests of a job; see the idempotency rules of EC2's API.
    token = client_token(cluster.job, generation, count, instance.name, subnet.id, int(cluster.started.timestamp()))
    params: dict[str, Any] = {
        "ImageId": cluster.ami.id,
        "InstanceType": instance.name,
        "MinCount": count,
        "MaxCount": count,
        "ClientToken": token,
        "IamInstanceProfile": {"Name": options.instance_profile},
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled", "HttpPutResponseHopLimit": HOP_LIMIT},
        "NetworkInterfaces": _interfaces(cluster, instance, subnet),
        "BlockDeviceMappings": _disks(cluster, instance),
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": [*tagged, {"Key": GENERATION_TAG, "Value": str(generation)}]},
            {"ResourceType": "volume", "Tags": tagged},
            {"ResourceType": "network-interface", "Tags": tagged},
        ],
        "UserData": user_data(cluster, instance),
    }
    if is_placed(cluster.settled):
        params["Placement"] = {"GroupName": group_name(cluster.job)}
    if options.spot:
        params["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
        }
    if options.capacity_block:
        params["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
    if reserved := options.capacity_reservation or options.capacity_block:
        target = {"CapacityReservationTarget": {"CapacityReservationId": reserved}}
        params["CapacityReservationSpecification"] = target
    why = f"start {count} x {instance.name} in {subnet.zone}"
    return Request("ec2", "RunInstances", params, why, name="nodes", again_after=NOT_YET)


def is_placed(settled: Settled) -> bool:
    """Whether the nodes get a placement group; reservations bring their own place."""
    options = settled.options
    return (
        options.placement_group and options.nodes > 1 and not (options.capacity_block or options.capacity_reservation)
    )


def uses_efa(settled: Settled, instance: Instance) -> bool:
    return settled.options.efa and instance.efa > 0 and settled.options.nodes > 1


def _interfaces(cluster: Cluster, instance: Instance, subnet: Subnet) -> list[dict[str, Any]]:
    """One interface, or with EFA one per network card; those after the first have device index 1 on their card."""
    cards = instance.efa if uses_efa(cluster.settled, instance) else 1
    kind = {"InterfaceType": "efa"} if uses_efa(cluster.settled, instance) else {}
    place = {"SubnetId": subnet.id, "Groups": [cluster.security_group], "DeleteOnTermination": True}
    return [
        {"DeviceIndex": min(card, 1), **({"NetworkCardIndex": card} if cards > 1 else {}), **kind, **place}
        for card in range(cards)
    ]


def _disks(cluster: Cluster, instance: Instance) -> list[dict[str, Any]]:
    """The system disk, and the data volume: with DeleteOnTermination neither can outlive its node."""
    root = {
        "DeviceName": cluster.ami.root_device,
        "Ebs": {
            "VolumeSize": cluster.settled.options.root_gb,
            "VolumeType": "gp3",
            "Encrypted": True,
            "DeleteOnTermination": True,
        },
    }
    if cluster.settled.data_volume != "per-node" or cluster.snapshot is None:
        return [root]
    volume = data_volume(instance, cluster.snapshot.gib)
    ebs: dict[str, Any] = {
        "SnapshotId": cluster.snapshot.id,
        "VolumeType": "gp3",
        "Iops": volume.iops,
        "Throughput": volume.throughput_mib_per_s,
        "Encrypted": True,
        "DeleteOnTermination": True,
    }
    if rate := initialization_rate(cluster.nodes):
        ebs["VolumeInitializationRate"] = rate
    return [root, {"DeviceName": DATA_DEVICE, "Ebs": ebs}]


def initialization_rate(nodes: int) -> int | None:
    """MiB/s at which each volume is filled from the snapshot, or None where so many nodes exceed the quota."""
    low, high = INITIALIZATION_RANGE
    share = INITIALIZATION_QUOTA // nodes
    return None if share < low else min(high, share)


def shared_volume(cluster: Cluster, zone: str | Late) -> list[Request]:
    """One io2 volume for all nodes, in the zone where they run."""
    assert cluster.snapshot is not None
    volume = io2_volume(cluster.snapshot.gib)
    params = {
        "AvailabilityZone": zone,
        "SnapshotId": cluster.snapshot.id,
        "VolumeType": "io2",
        "Iops": volume.iops,
        "MultiAttachEnabled": True,
        "Encrypted": True,
        "ClientToken": client_token(cluster.job, "data", int(cluster.started.timestamp())),
        "TagSpecifications": [{"ResourceType": "volume", "Tags": cluster.tags}],
    }
    return [Request("ec2", "CreateVolume", params, "one data volume that all nodes read", name="data volume")]


def attach(volume: str | Late, node: str | Late) -> Request:
    params = {"VolumeId": volume, "InstanceId": node, "Device": DATA_DEVICE}
    return Request("ec2", "AttachVolume", params, f"give it to {node}", ("VolumeInUse",))


def end_with(node: str) -> Request:
    """The volume ends with the last node that has it, as volumes of the launch do anyway."""
    mapping = [{"DeviceName": DATA_DEVICE, "Ebs": {"DeleteOnTermination": True}}]
    params = {"InstanceId": node, "BlockDeviceMappings": mapping}
    return Request("ec2", "ModifyInstanceAttribute", params, f"and let it end with {node}")


def user_data(cluster: Cluster, instance: Instance) -> str:
    """The boot script for a node of this type."""
    settled, options = cluster.settled, cluster.settled.options
    flags = ["--gpus", "all"] if instance.is_gpu else []
    if uses_efa(settled, instance):
        flags += ["--device", "/dev/infiniband"]
    return fill(
        "ec2/boot.sh",
        {
            "JOB": cluster.job,
            "REGION": cluster.region,
            "FOLDER": cluster.folder.uri,
            "NPROC": str(settled.nproc(instance)),
            "MINUTES": str(max(1, round(options.max_hours * 60))),
            "IMAGE": cluster.image,
            "REGISTRY": cluster.registry,
            "LOG_GROUP": LOG_GROUP,
            "DATA_VOLUME": settled.data_volume,
            "DATA_S3": options.data_s3 or "",
            "MAX_RESTARTS": str(options.max_restarts),
            "DOCKER_FLAGS": flags,
            "TRAIN": cluster.train,
        },
    )
