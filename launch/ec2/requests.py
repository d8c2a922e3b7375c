"""The requests of a job on EC2, one function each: files, time limit, groups, nodes and their volumes.  Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from launch.aws import upload
from launch.aws.instances import requests as instances
from launch.aws.instances.facts import Ami, Subnet
from launch.aws.instances.requests import NOT_YET, Start
from launch.aws.names import GENERATION_TAG, HOURLY_TAG, ONCE_TAG, Folder, client_token, group_name, tags
from launch.core.catalog import Instance
from launch.core.estimate.volume import data_volume, io2_volume, root_volume
from launch.core.job import NOT_THE_JOB
from launch.core.manifest import Content
from launch.core.plan import FromAnswer, Request, unless_changed
from launch.core.price import CATALOGS, Prices
from launch.core.secrets import read_references
from launch.core.source.archive import Archive
from launch.core.templates import fill
from launch.core.training.base import Training
from launch.ec2.backend import BACKEND_NAME, DATA_DEVICE, LOG_GROUP
from launch.ec2.checks import CACHE_DIR, DATA_DIR, Resolved, node_usd
from launch.ec2.facts import Snapshot, WarmNodes, next_name
from launch.ec2.options import Ec2Options
from launch.ec2.volume_init import VolumeInit
from trainer.contract import NODE_GBPS, NODE_GPUS

RETENTION_DAYS = 90


@dataclass(frozen=True)
class Cluster:
    """Everything that the requests of a job are made of, with placeholders in <> for values that are not known yet."""

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
    owner: str = ""  # aws:userid of the caller
    downloads: bool = False  # whether the training fetches its data from the internet
    content: Content | None = None  # of its data, if counted
    toolkit: Archive | None = None  # the trainer, for an image that lacks it
    direct: tuple[str, ...] = ()  # hosts that nodes reach without --proxy
    warm: WarmNodes | None = None  # the nodes of another job, on which this one starts

    @property
    def nodes(self) -> int:
        return self.resolved.options.nodes

    @property
    def warm_time(self) -> timedelta:
        """How long its nodes wait for a next job, within the deadline."""
        return timedelta(minutes=self.resolved.options.keep_warm)

    @property
    def source_key(self) -> str:
        """The key of the script's source in the bucket; empty without a script."""
        return upload.key_of(self.train.digest, self.started) if self.train.digest else ""

    @property
    def toolkit_key(self) -> str:
        """The key of the trainer in the bucket; empty if the image has it."""
        return upload.key_of(self.toolkit.digest, self.started, "toolkit") if self.toolkit else ""

    @property
    def tags(self) -> list[dict[str, str]]:
        return tags(self.job, self.folder.bucket, self.started, self.deadline, self.owner)


NAME_TAKEN = "NameTaken"  # the toolkit's error code if another command has written job.json since it was read


def spec(cluster: Cluster) -> dict[str, Any]:
    """job.json: the settings, by which a second start recognizes its job."""
    options = cluster.resolved.options.model_dump(mode="json", exclude=NOT_THE_JOB)
    regions = list(cluster.resolved.options.region)  # in which to look for the job
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
    """Whether `known`, the job.json that was read, is up to date.

    Then it is not rewritten, which would lose the end that a stop may have recorded since.
    """
    return known is not None and known == json.loads(json.dumps(spec(cluster), default=str))


def put_spec(cluster: Cluster, known_as: str) -> Request:
    """Claim the job's name; one of simultaneous launches succeeds.  known_as: see unless_changed()."""
    return put_version(cluster.folder, spec(cluster), known_as, "save the settings")


def put_version(folder: Folder, content: Mapping[str, Any], known_as: str, why: str) -> Request:
    """Write job.json, unless another command has meanwhile.  known_as: see unless_changed()."""
    put = _put(folder, folder.spec, content, why)
    return replace(unless_changed(put, known_as), taken=NAME_TAKEN)


def put_cluster_file(folder: Folder, content: Mapping[str, Any]) -> Request:
    return _put(folder, folder.cluster, content, "give the nodes each other's addresses, by rank")


def _put(folder: Folder, key: str, content: Mapping[str, Any], why: str) -> Request:
    body = json.dumps(content, indent=1, default=str)
    params = {"Bucket": folder.bucket, "Key": key, "Body": body, "ContentType": "application/json"}
    return Request("s3", "PutObject", params, why)


def log_group(retention: bool) -> list[Request]:
    """The requests for the log group that all jobs share; it is kept with its logs."""
    name = {"logGroupName": LOG_GROUP}
    requests = [
        Request("logs", "CreateLogGroup", name, "create the log group", ("ResourceAlreadyExistsException",)),
        Request("logs", "PutRetentionPolicy", {**name, "retentionInDays": RETENTION_DAYS}, "set its retention"),
    ]
    return requests if retention else requests[:1]


def time_limit(cluster: Cluster, exists: bool) -> list[Request]:
    """The requests for the job's time limit."""
    return instances.time_limit(cluster.job, cluster.deadline, cluster.scheduler_role, exists=exists)


def security_group(cluster: Cluster, vpc: str, dns: Sequence[str]) -> list[Request]:
    """The requests for a security group that allows traffic among its members, and HTTPS out.

    dns: the VPC's own DNS servers.
    """
    about, why = f"nodes of {cluster.job}: each other, and HTTPS out", "create a security group for the nodes"
    # With the start in its name: a later start of the job may find the group at work for another, see warm.py.
    name = f"{cluster.job}-{cluster.started:%Y%m%d%H%M%S}"
    create = instances.security_group(name, about, vpc, cluster.tags, why)
    return [create, *security_rules(instances.NEW_GROUP, dns, cluster.resolved.options.proxy)]


def security_rules(group: str | FromAnswer, dns: Sequence[str], proxy: str | None) -> list[Request]:
    """The requests for its rules: all protocols within the group, as EFA needs them; outbound HTTPS, and the proxy."""
    itself = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
    out = [itself, instances.HTTPS, *instances.to_proxy(proxy)]
    return [
        instances.inbound(group, [itself], "inbound: only among the nodes"),
        instances.outbound(group, out, f"outbound: among the nodes, {'HTTPS and the proxy' if proxy else 'and HTTPS'}"),
        *instances.outbound_dns(group, dns),
        *instances.nothing_else_out(group),
    ]


def placement_name(job: str, generation: int) -> str:
    """The name of the placement group that is made for these nodes.

    Not one for the job: a group stays in the zone of its nodes until the last of them is terminated, which may take
    minutes, and their replacements may be in another zone.
    """
    return f"{group_name(job)}-{generation}"


def placement_group(cluster: Cluster, name: str) -> Request:
    return Request(
        "ec2",
        "CreatePlacementGroup",
        {
            "GroupName": name,
            "Strategy": "cluster",
            "TagSpecifications": [{"ResourceType": "placement-group", "Tags": cluster.tags}],
        },
        "place the nodes close together",
        ("InvalidPlacementGroup.Duplicate",),
    )


MEET_S = 900  # seconds in which nodes must connect to each other, not counting the wait for replacements


def run_instances(
    cluster: Cluster, instance: Instance, subnet: Subnet, count: int, generation: int, volume: VolumeInit, group: str
) -> Request:
    """The request for all missing nodes, or none, in one zone, with their volumes and tags.

    group: the placement group; empty for none.
    """
    # All parameters that may differ between two requests of a job; see the idempotency rules of EC2's API.
    parts = [cluster.job, generation, count, instance.name, subnet.id, int(cluster.started.timestamp())]
    start = Start(
        count=count,
        type=instance.name,
        ami=cluster.ami,
        root=root_volume(cluster.resolved.options.root_gb),
        token=client_token(*parts, *([] if volume.rate is None else [volume.rate])),
        profile=cluster.resolved.options.instance_profile,
        interfaces=_interfaces(cluster, instance, subnet),
        user_data=user_data(cluster, instance),
        tags=cluster.tags,
        own_tags=_own_tags(cluster, instance, generation, volume),
        volumes=_data_volume(cluster, instance, volume.rate),
        more={
            **({"Placement": {"GroupName": group}} if group and instance.in_cluster else {}),
            **_market(cluster.resolved.options),
        },
    )
    return start.request(f"start {count} x {instance.name} in {subnet.zone}", "nodes")


def _own_tags(cluster: Cluster, instance: Instance, generation: int, volume: VolumeInit) -> dict[str, str]:
    """The tags of nodes only: their prices, which cannot be looked up later when a job's cost is computed."""
    is_priced = cluster.resolved.options.capacity_block or cluster.prices.knows(instance)
    price = {HOURLY_TAG: f"{node_usd(cluster.resolved, instance, cluster.prices):.6g}"} if is_priced else {}
    return {GENERATION_TAG: str(generation), **price, ONCE_TAG: f"{volume.usd:.6g}"}


def _market(options: Ec2Options) -> dict[str, Any]:
    """The parameters for spot capacity, or for a reservation."""
    params: dict[str, Any] = {}
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
    return params


def is_placed(resolved: Resolved) -> bool:
    """Whether the nodes get a placement group; reservations already fix the placement."""
    options = resolved.options
    is_reserved = options.capacity_block or options.capacity_reservation
    takes_it = any(instance.in_cluster for instance in resolved.instances)
    return options.placement_group and options.nodes > 1 and takes_it and not is_reserved


def uses_efa(resolved: Resolved, instance: Instance) -> bool:
    return resolved.options.efa and instance.efa > 0 and resolved.options.nodes > 1


def interfaces(resolved: Resolved, instance: Instance) -> int:
    """Number of network interfaces of a node.  AWS assigns a public address only to a node with one interface."""
    return instance.efa + 1 if uses_efa(resolved, instance) and instance.efa > 1 else 1


def network_gbps(resolved: Resolved, instance: Instance) -> float:
    """The sustained Gbit/s of a node, which without EFA uses one of its network cards."""
    base = instance.network_gbps.base
    return base if uses_efa(resolved, instance) else base / max(1, instance.efa)


def _interfaces(cluster: Cluster, instance: Instance, subnet: Subnet) -> list[dict[str, Any]]:
    """One interface; with several network cards an ordinary one for IP, and an EFA-only one on each card.

    EFA-only interfaces take no address of the subnet.
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html
    """
    common: dict[str, Any] = {"SubnetId": subnet.id, "Groups": [cluster.security_group], "DeleteOnTermination": True}
    first: dict[str, Any] = {"DeviceIndex": 0, **common}
    if not uses_efa(cluster.resolved, instance):
        return [first]
    if instance.efa == 1:
        return [{"InterfaceType": "efa", **first}]
    rows = [{"NetworkCardIndex": 0, **first}]
    for card in range(instance.first_efa_card, instance.first_efa_card + instance.efa):
        device = 1 if card == 0 else 0  # the first card also has the ordinary one
        rows.append({"NetworkCardIndex": card, "InterfaceType": "efa-only", **common, "DeviceIndex": device})
    return rows


def _data_volume(cluster: Cluster, instance: Instance, rate: int | None) -> list[dict[str, Any]]:
    """The data volume, which is deleted with its node; empty if it has none of its own.

    rate: initialization rate of the volume in MiB/s, None for AWS's default.
    """
    if cluster.resolved.data_volume != "per-node" or cluster.snapshot is None:
        return []
    volume = data_volume(instance, cluster.snapshot.gib)
    ebs: dict[str, Any] = {
        "SnapshotId": cluster.snapshot.id,
        "VolumeType": "gp3",
        "Iops": volume.iops,
        "Throughput": volume.throughput_mib_per_s,
        "Encrypted": True,
        "DeleteOnTermination": True,
    }
    if rate is not None:
        ebs["VolumeInitializationRate"] = rate
    return [{"DeviceName": DATA_DEVICE, "Ebs": ebs}]


def shared_volume(cluster: Cluster, zone: str | FromAnswer, generation: int) -> Request:
    """The request for one io2 volume shared by all nodes, in their zone.

    generation: of the nodes.  The volume is deleted with the last of them, and an old client token would return it.
    """
    assert cluster.snapshot is not None
    volume = io2_volume(cluster.snapshot.gib)
    params = {
        "AvailabilityZone": zone,
        "SnapshotId": cluster.snapshot.id,
        "VolumeType": "io2",
        "Iops": volume.iops,
        **({"Size": volume.gib} if volume.gib > cluster.snapshot.gib else {}),
        "MultiAttachEnabled": True,
        "Encrypted": True,
        "ClientToken": client_token(cluster.job, "data", generation, int(cluster.started.timestamp())),
        "TagSpecifications": [{"ResourceType": "volume", "Tags": cluster.tags}],
    }
    return Request("ec2", "CreateVolume", params, "create one data volume that all nodes read", name="data volume")


def attach(volume: str | FromAnswer, node: str | FromAnswer) -> Request:
    params = {"VolumeId": volume, "InstanceId": node, "Device": DATA_DEVICE}
    return Request("ec2", "AttachVolume", params, f"attach it to {node}", ("VolumeInUse",), retry_after=NOT_YET)


def delete_with(node: str) -> Request:
    """The request to delete the volume with the last node to which it is attached."""
    mapping = [{"DeviceName": DATA_DEVICE, "Ebs": {"DeleteOnTermination": True}}]
    params = {"InstanceId": node, "BlockDeviceMappings": mapping}
    return Request("ec2", "ModifyInstanceAttribute", params, f"delete it with {node}", retry_after=NOT_YET)


def user_data(cluster: Cluster, instance: Instance) -> str:
    """The boot script for a node of this type."""
    resolved, options = cluster.resolved, cluster.resolved.options
    flags = ["--gpus", "all"] if instance.is_gpu else []
    if uses_efa(resolved, instance):
        flags += ["--device", "/dev/infiniband"]
    gbps = network_gbps(resolved, instance)
    if resolved.streams:  # cache on the local disk, if there is one; nothing else writes there
        flags += ["-v", f"{DATA_DIR}:{CACHE_DIR}"]
    flags += ["-e", f"{NODE_GPUS}={instance.gpus}", "-e", f"{NODE_GBPS}={gbps:g}"]
    return fill(
        "ec2/boot.sh",
        {
            "JOB": cluster.job,
            "REGION": cluster.region,
            "FOLDER": cluster.folder.uri,
            "NPROC": str(resolved.nproc(instance)),
            "MINUTES": str(max(1, round(options.max_hours * 60))),
            "IMAGE": cluster.image,
            "REGISTRY": cluster.registry,
            "LOG_GROUP": LOG_GROUP,
            "DATA_VOLUME": "cache" if resolved.streams else resolved.data_volume,
            "DATA_S3": options.data_s3 or "",
            "SECRETS": [f"{name}={where}" for name, where in read_references(options.secret).items()],
            "MEET_S": str(MEET_S + round(options.wait_for_capacity * 3600)),
            "MAX_RESTARTS": str(options.max_restarts),
            "DOCKER_FLAGS": flags,
            "WARM": str(options.keep_warm),
            "NEXT": next_name(cluster.started) if options.keep_warm else "",
            "SOURCE": _uri(cluster, cluster.source_key),
            "TOOLKIT": _uri(cluster, cluster.toolkit_key),
            "TRAIN": _training(cluster, instance),
            "PROXY": options.proxy or "",
            "DIRECT": ",".join(cluster.direct),
        },
    )


def _uri(cluster: Cluster, key: str) -> str:
    return f"s3://{cluster.folder.bucket}/{key}" if key else ""


def _training(cluster: Cluster, instance: Instance) -> tuple[str, ...]:
    """The command of each rank on a node of this type."""
    return (cluster.train.on_gpus() if instance.is_gpu else cluster.train).words
