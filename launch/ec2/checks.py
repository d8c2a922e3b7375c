"""Checks the settings of a job before any call to AWS, resolves their defaults, and prices them.  Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from types import MappingProxyType

from launch.aws.names import parse_s3
from launch.aws.network import check_proxy
from launch.aws.published import check_name
from launch.core import catalog
from launch.core.catalog import Instance
from launch.core.estimate.volume import QUOTA, RANGE, data_volume, io2_volume, rate_for, root_volume
from launch.core.job import Job, check_job_name
from launch.core.price import CATALOGS, Prices, usd_per_hour
from launch.core.secrets import read_references
from launch.core.training.base import Training
from launch.ec2.options import IMAGE, Ec2Options
from trainer.errors import SettingsError

# The data and the run folder in a node's container; see infra/ec2/boot.sh.
DATA_DIR, RUN_DIR, CACHE_DIR = Path("/data"), Path("/job/run"), Path("/cache")
# The archive of a script's source there, and the folder in which it is unpacked.
WORK_DIR = Path("/job/source")
ARCHIVE = WORK_DIR / "source.tar.gz"


@dataclass(frozen=True)
class Resolved:
    """The options with all defaults resolved."""

    options: Ec2Options
    instances: tuple[Instance, ...]
    train: Training
    data_volume: str  # per-node, multi-attach or none
    data_in_s3: str | None = None  # the folder that nodes read
    warnings: tuple[str, ...] = ()  # about settings, as sentences

    @property
    def detaches(self) -> bool:
        return self.options.detach or not self.options.wait or self.options.queue is not None

    @property
    def streams(self) -> bool:
        """Whether the training itself reads shards from S3."""
        return self.data_in_s3 is not None and self.options.data_s3 is None

    @property
    def brings_data(self) -> bool:
        """Whether the data come from a snapshot or from S3."""
        return self.data_volume != "none" or self.options.data_s3 is not None

    def nproc(self, instance: Instance) -> int:
        """Processes per node of this type."""
        return self.train.processes(self.options.nproc_per_node, instance.gpus)


def in_container(resolved: Resolved) -> Training:
    """The training as it runs on the nodes, with the folders where boot.sh mounts them."""
    train = resolved.train.sent(ARCHIVE, WORK_DIR).at(run_dir=RUN_DIR)
    if resolved.streams:
        return train.at(cache_dir=CACHE_DIR)
    return train.at(data_dir=DATA_DIR) if resolved.brings_data else train


def node_usd(resolved: Resolved, instance: Instance, prices: Prices) -> float:
    """USD per hour of a node on demand; 0 in a capacity block, which is paid in advance."""
    return 0.0 if resolved.options.capacity_block else prices.of(instance)


def hourly_usd(
    resolved: Resolved, instance: Instance, data_gib: int, prices: Prices = CATALOGS, usd: float | None = None
) -> float:
    """USD per hour of all nodes with their volumes.  usd: of one node (default: the on-demand price)."""
    node = node_usd(resolved, instance, prices) if usd is None else usd
    nodes = resolved.options.nodes
    disks = nodes * usd_per_hour(root_volume(resolved.options.root_gb))
    if resolved.data_volume == "multi-attach":
        disks += usd_per_hour(io2_volume(data_gib))
    if resolved.data_volume == "per-node":
        disks += nodes * usd_per_hour(data_volume(instance, data_gib))
    return nodes * node + disks * prices.storage


def highest_usd(
    resolved: Resolved, instance: Instance, data_gib: int, prices: Prices = CATALOGS, once_usd: float = 0.0
) -> float:
    """USD until the time limit, and of warm nodes after it, at the on-demand price, which spot prices may reach.

    once_usd: the cost of starting a node; each restart may replace all nodes.
    """
    options = resolved.options
    starts = options.nodes * (1 + options.max_restarts)
    hours = options.max_hours + options.keep_warm / 60
    return hourly_usd(resolved, instance, data_gib, prices) * hours + once_usd * starts


# The open driver begins with Turing (sm_75): https://docs.aws.amazon.com/dlami/latest/devguide/important-changes.html
NO_DRIVER = ("sm_37", "sm_52", "sm_70")
NOTHING: Mapping[str, float] = MappingProxyType({})


def resolve(job: Job[Ec2Options], found: Mapping[str, Instance] = MappingProxyType({})) -> Resolved:
    """Resolve the job's settings.  Raises SettingsError for those that cannot work or may cost too much.

    found: types that the catalog lacks, as EC2 describes them.
    """
    options = job.where
    _check_regions(options)
    if options.nodes > options.max_nodes:
        raise SettingsError(f"--nodes {options.nodes} exceeds --max-nodes {options.max_nodes}; raise it if intended.")
    if options.job_name is not None:
        check_job_name(options.job_name)
    instances = tuple(_instance(name, options, found) for name in options.instance_type)
    if not instances:
        raise SettingsError("--instance-type is empty; give for example g5.2xlarge.")
    if job.train.run_dir is not None or job.train.checkpoint_dir is not None:
        raise SettingsError("the job folder holds the run and its checkpoints; omit --run-dir and --checkpoint-dir.")
    read_references(options.secret)
    _check_queue(options)
    check_proxy(options.proxy)
    _check_init_from(job)
    resolved = Resolved(options, instances, job.train, data_volume_of(job), options.data_s3 or job.train.data_url)
    job.train.check_data(has_data=resolved.brings_data or job.train.data_dir is not None)
    resolved = replace(resolved, warnings=(*job.notes, *data_dir_warning(job.train, resolved)))
    for instance in instances:
        _check_processes(resolved, instance)
        job.train.check_ranks(options.nodes, resolved.nproc(instance))
    job.train.check_limit(options.max_hours)
    _check_market(options, instances)
    check_price(resolved)
    return resolved


def _check_queue(options: Ec2Options) -> None:
    flags = [f"--{name}" for name in ("priority", "share") if getattr(options, name) is not None]
    if options.queue is None and flags:
        raise SettingsError(f"{' and '.join(flags)}: of a job in a queue; add --queue, or leave it out.")


# Options that name a resource of one region.
OF_ONE_REGION = ("zones", "subnet", "security_group", "capacity_reservation", "capacity_block", "ami", "bucket",
                 "data_snapshot")  # fmt: skip


def _check_regions(options: Ec2Options) -> None:
    """Raises SettingsError if several regions are given with a resource that exists in one only."""
    if len(options.region) < 2:
        return
    for name in OF_ONE_REGION:
        if getattr(options, name):
            given = f"--{name.replace('_', '-')}"
            raise SettingsError(f"{given} names a resource of one region; give one --region, or leave {given} out.")


def _instance(name: str, options: Ec2Options, found: Mapping[str, Instance]) -> Instance:
    instance = found.get(name) or catalog.unknown(name) or catalog.find(name)
    if not instance.is_gpu and not options.allow_cpu:
        raise SettingsError(f"--instance-type {name} has no GPU; add --allow-cpu if intended.")
    if instance.architecture in NO_DRIVER and options.ami is None:
        raise SettingsError(
            f"--instance-type {name}: AWS's AMIs with NVIDIA's open driver do not drive a {instance.gpu_model}; give "
            "one that does with --ami, and an image whose PyTorch is built for it, or take a newer type: g5.2xlarge."
        )
    if not instance.is_on_demand and not options.capacity_block:
        raise SettingsError(f"{name} is sold in capacity blocks only; buy one and give its id with --capacity-block.")
    return instance


def _check_processes(resolved: Resolved, instance: Instance) -> None:
    processes = resolved.options.nproc_per_node
    if processes is not None and instance.is_known and instance.is_gpu and processes > instance.gpus:
        gpus = "1 GPU" if instance.gpus == 1 else f"{instance.gpus} GPUs"
        raise SettingsError(f"--nproc-per-node {processes}: {instance.name} has {gpus}; use one process per GPU.")


def _check_init_from(job: Job[Ec2Options]) -> None:
    """Raises SettingsError for weights that no node can read."""
    path = job.train.init_from
    if path is None or path.is_relative_to(DATA_DIR) or path.is_relative_to(RUN_DIR):
        return
    if path.is_absolute() and job.where.image != IMAGE:
        return  # perhaps in the user's own image
    name = job.where.job_name or "JOB"
    target = f"s3://{job.where.bucket or 'BUCKET'}/jobs/{name}/run/{path.name}"
    raise SettingsError(
        f"--init-from {path}: nodes cannot read files of this machine.  Copy it to the job folder with\n"
        f"  aws s3 cp {quote(str(path))} {quote(target)}\n"
        f"and give --job-name {name} --init-from {quote(str(RUN_DIR / path.name))}"
    )


def _check_market(options: Ec2Options, instances: tuple[Instance, ...]) -> None:
    is_reserved = bool(options.capacity_reservation or options.capacity_block)
    if options.spot and is_reserved:
        raise SettingsError("--spot excludes a capacity reservation or block; omit one of them.")
    if options.capacity_reservation and options.capacity_block:
        raise SettingsError("--capacity-reservation and --capacity-block exclude each other; omit one of them.")
    if is_reserved and len(instances) > 1:
        raise SettingsError("a reservation holds one instance type; give one --instance-type.")


def check_price(
    resolved: Resolved, data_gib: int = 0, prices: Prices = CATALOGS, once_usd: Mapping[str, float] = NOTHING
) -> None:
    """Raises SettingsError if the job may cost more than --max-usd.

    data_gib: 0 while the snapshot is unknown; once_usd: the cost of starting a node, by type.
    """
    options, limit = resolved.options, resolved.options.max_usd
    for instance in resolved.instances:
        most = highest_usd(resolved, instance, data_gib, prices, once_usd.get(instance.name, 0.0))
        if limit is not None and most > limit:
            warm = f" and {options.keep_warm} min warm" if options.keep_warm else ""
            raise SettingsError(
                f"{options.nodes} x {instance.name} for {options.max_hours:g} h{warm} may cost {most:,.2f} USD, more "
                f"than --max-usd {limit:g}; lower --max-hours or --nodes, or raise --max-usd."
            )


MULTI_ATTACH_LIMIT = 16  # https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volumes-multi.html


def data_volume_of(job: Job[Ec2Options]) -> str:
    """The kind of data volume; auto becomes per-node or none."""
    options = job.where
    if options.data_s3 is not None and parse_s3(options.data_s3) is None:
        raise SettingsError(f"--data-s3 {options.data_s3}: must have the form s3://bucket/folder.")
    _check_name(options)
    kind = options.data_volume
    if kind == "auto":
        kind = "per-node" if _wants_volume(job) else "none"
    if job.train.data_url is not None:
        _check_streamed(options, kind)
    elif kind == "none":
        _check_without_volume(job)
    else:
        _check_volume(job, kind)
    _check_volume_init(options, kind)
    if options.keep_warm and kind == "multi-attach":
        raise SettingsError("--keep-warm is for nodes with data volumes of their own; omit --data-volume multi-attach.")
    return kind


def _wants_volume(job: Job[Ec2Options]) -> bool:
    """Whether the data are on a volume by default, without --data-volume."""
    options = job.where
    if options.data_s3 is not None or job.train.data_url is not None:
        return False
    return job.train.reads_folder or options.data_snapshot is not None or options.data is not None


def _check_name(options: Ec2Options) -> None:
    """Raises SettingsError for an invalid name of a data set, and for data from two places."""
    if options.data is None:
        return
    check_name(options.data)
    for other in ("data_snapshot", "data_s3"):
        if getattr(options, other) is not None:
            flag = f"--{other.replace('_', '-')}"
            raise SettingsError(f"--data and {flag} both provide the data; give one of them.")
    if options.data_volume == "none":
        raise SettingsError("--data needs a volume; omit --data-volume none.")


def _check_streamed(options: Ec2Options, kind: str) -> None:
    """Raises SettingsError if --data-url streams shards from S3 and another option provides data as well."""
    given = [name for name in ("data", "data_snapshot", "data_s3") if getattr(options, name) is not None]
    if given:
        flag = f"--{given[0].replace('_', '-')}"
        raise SettingsError(f"--data-url and {flag} both provide the data; give one of them.")
    if kind != "none":
        raise SettingsError("--data-url needs no volume; omit --data-volume.")


def _check_without_volume(job: Job[Ec2Options]) -> None:
    options = job.where
    if options.data_snapshot is not None and options.data_s3 is not None:
        raise SettingsError("--data-s3 and --data-snapshot both provide the data; give one of them.")
    if options.data_snapshot is not None:
        raise SettingsError("--data-snapshot needs a volume; omit --data-volume none.")
    if options.data_s3 is None and job.train.needs_data:
        raise SettingsError(f"{job.train.dataset} cannot be downloaded; provide it with --data-snapshot or --data-s3.")


def _check_volume(job: Job[Ec2Options], kind: str) -> None:
    options = job.where
    if not (job.train.dataset or options.data or options.data_snapshot or options.data_s3):
        raise SettingsError(
            f"--data-volume {kind} is made of a snapshot, and a script of your own names none; give --data NAME or "
            "--data-snapshot."
        )
    if options.data_s3 is not None:
        raise SettingsError(f"--data-s3 and --data-volume {kind} both provide the data; give one of them.")
    if kind == "multi-attach" and options.nodes > MULTI_ATTACH_LIMIT:
        raise SettingsError(
            f"--data-volume multi-attach supports at most {MULTI_ATTACH_LIMIT} nodes; use per-node for {options.nodes}."
        )


def _check_volume_init(options: Ec2Options, kind: str) -> None:
    """Raises SettingsError if --fill-volumes always cannot be fulfilled."""
    if options.fill_volumes != "always":
        return
    if kind != "per-node":
        raise SettingsError(
            f"--fill-volumes always is for a data volume per node, and --data-volume is {kind}; omit --fill-volumes."
        )
    if rate_for(options.nodes) is None:
        least, most = RANGE[0], QUOTA // RANGE[0]
        raise SettingsError(
            f"--fill-volumes always: {options.nodes} volumes at {least} MiB/s, the least, exceed the region's quota of "
            f"{QUOTA:,} MiB/s; give at most {most} --nodes, or omit it."
        )


def data_dir_warning(train: Training, resolved: Resolved) -> tuple[str, ...]:
    """A warning if --data-dir is a folder of this machine, which nodes cannot read."""
    if train.data_dir in (None, DATA_DIR) or "data_dir" not in train.folders:
        return ()
    if resolved.brings_data:
        options = resolved.options
        place = options.data_s3 or options.data_snapshot or f"the newest snapshot of {options.data or train.dataset}"
        return (
            f"--data-dir {train.data_dir} is not used: nodes read {DATA_DIR}, which gets its data from {place}.  "
            f"{_publishing(train)}",
        )
    return (
        f"--data-dir {train.data_dir} is a folder in the nodes' containers, not on this machine.  {_publishing(train)}",
    )


def _publishing(train: Training) -> str:
    """How to bring a folder of this machine to the nodes."""
    if not train.reads_folder or train.data_dir is None:
        return "To use your data, upload them and give --data-s3 s3://BUCKET/FOLDER."
    name = re.sub(r"[^a-z0-9]+", "-", train.data_dir.name.lower())[:48].strip("-") or "photos"
    publish = f"python -m launch.data publish {quote(str(train.data_dir))} --name {name}"
    return f"To use that folder, publish it ({publish}), and give --data {name}."
