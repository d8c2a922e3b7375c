"""What a job's settings must fulfil before anything is asked of AWS.  Pure."""

from dataclasses import dataclass, replace
from pathlib import Path

from launch.core import catalog
from launch.core.catalog import Instance
from launch.core.job import Job
from launch.core.names import check_job_name
from launch.core.price import Volume, usd_per_hour
from launch.core.secrets import read_references
from launch.ec2.options import Ec2Options
from trainer.config import TrainConfig, check_batches
from trainer.errors import SettingsError

# Data sets that are too large for the image or a download at each start.
ON_A_VOLUME = ("imagenet", "imagefolder")
MULTI_ATTACH_LIMIT = 16  # https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volumes-multi.html


@dataclass(frozen=True)
class Resolved:
    """The options, with every choice that follows from them made."""

    options: Ec2Options
    instances: tuple[Instance, ...]
    data_volume: str  # per-node, multi-attach or none

    @property
    def detaches(self) -> bool:
        return self.options.detach or not self.options.wait

    def nproc(self, instance: Instance) -> int:
        """Processes on one node of a type."""
        return self.options.nproc_per_node or max(1, instance.gpus)


def resolve(job: Job[Ec2Options]) -> Resolved:
    """The job's choices.  Raises SettingsError for what cannot work or may cost too much."""
    options = job.where
    if options.nodes > options.max_nodes:
        raise SettingsError(
            f"--nodes {options.nodes} is over --max-nodes {options.max_nodes}; raise it if you mean it."
        )
    if options.job_name is not None:
        check_job_name(options.job_name)
    instances = tuple(_instance(name, options) for name in options.instance_type)
    if not instances:
        raise SettingsError("--instance-type names no type; give for example g5.2xlarge.")
    if job.train.run_dir is not None or job.train.checkpoint_dir is not None:
        raise SettingsError("--run-dir and --checkpoint-dir are the job folder's on EC2; leave them out.")
    read_references(options.secret)
    resolved = Resolved(options, instances, _data_volume(job))
    for instance in instances:
        _check_processes(resolved, instance)
        check_batches(job.train, options.nodes * resolved.nproc(instance))
    _check_market(options, instances)
    check_price(resolved, data_gib=0)
    return resolved


def _instance(name: str, options: Ec2Options) -> Instance:
    if name.startswith(catalog.SAGEMAKER_PREFIX):
        raise SettingsError(f"--instance-type {name} is SageMaker's name; EC2 calls it {name.removeprefix('ml.')}.")
    instance = catalog.find(name)
    if not instance.is_gpu and not options.allow_cpu:
        raise SettingsError(f"--instance-type {name} has no GPU; give --allow-cpu if you mean it.")
    if not instance.is_on_demand and not options.capacity_block:
        raise SettingsError(f"{name} is only sold in capacity blocks; buy one, and give its id with --capacity-block.")
    return instance


def _check_processes(resolved: Resolved, instance: Instance) -> None:
    wanted = resolved.options.nproc_per_node
    if wanted is not None and instance.is_gpu and wanted > instance.gpus:
        gpus = "1 GPU" if instance.gpus == 1 else f"{instance.gpus} GPUs"
        raise SettingsError(f"--nproc-per-node {wanted}: {instance.name} has {gpus}; start one process per GPU.")


def _data_volume(job: Job[Ec2Options]) -> str:
    options, wanted = job.where, job.where.data_volume
    if options.data_s3 is not None and not options.data_s3.startswith("s3://"):
        raise SettingsError(f"--data-s3 {options.data_s3}: must look like s3://bucket/folder.")
    if wanted == "auto":
        needed = job.train.dataset in ON_A_VOLUME or options.data_snapshot is not None
        wanted = "per-node" if needed and options.data_s3 is None else "none"
    if wanted != "none" and options.data_s3 is not None:
        raise SettingsError(f"--data-s3 and --data-volume {wanted} both bring the data; give one of them.")
    if wanted == "none" and options.data_snapshot is not None:
        raise SettingsError("--data-snapshot needs a volume; leave out --data-volume none.")
    if wanted == "none" and options.data_s3 is None and job.train.dataset in ON_A_VOLUME:
        raise SettingsError(f"{job.train.dataset} must come from somewhere; give --data-snapshot or --data-s3.")
    if wanted == "multi-attach" and options.nodes > MULTI_ATTACH_LIMIT:
        raise SettingsError(
            f"--data-volume multi-attach takes at most {MULTI_ATTACH_LIMIT} nodes; take per-node for {options.nodes}."
        )
    return wanted


def _check_market(options: Ec2Options, instances: tuple[Instance, ...]) -> None:
    if options.spot and (options.capacity_reservation or options.capacity_block):
        raise SettingsError("--spot does not go with a reservation or a capacity block; leave one of them out.")
    if options.capacity_reservation and options.capacity_block:
        raise SettingsError("--capacity-reservation and --capacity-block exclude each other; leave one out.")
    if (options.capacity_reservation or options.capacity_block) and len(instances) > 1:
        raise SettingsError("a reservation holds one instance type; give one --instance-type.")


def check_price(resolved: Resolved, data_gib: int) -> None:
    """Raises SettingsError if the job may cost more than --max-usd.  data_gib: 0 while the snapshot is not known."""
    options, limit = resolved.options, resolved.options.max_usd
    for instance in resolved.instances:
        most = highest_usd(resolved, instance, data_gib)
        if limit is not None and most > limit:
            raise SettingsError(
                f"{options.nodes} x {instance.name} for {options.max_hours:g} h may cost {most:,.2f} USD, over "
                f"--max-usd {limit:g}; lower --max-hours or --nodes, or raise --max-usd."
            )


def hourly_usd(resolved: Resolved, instance: Instance, data_gib: int, usd: float | None = None) -> float:
    """USD per hour of all nodes with their volumes.  usd: of one node, if other than on demand."""
    one = instance.usd_per_hour if usd is None else usd
    disks = resolved.options.nodes * usd_per_hour(Volume(resolved.options.root_gb))
    if resolved.data_volume == "multi-attach":
        return resolved.options.nodes * one + disks + usd_per_hour(io2_volume(data_gib))
    data = data_volume(instance, data_gib) if resolved.data_volume == "per-node" else Volume(0)
    return resolved.options.nodes * (one + usd_per_hour(data)) + disks


def highest_usd(resolved: Resolved, instance: Instance, data_gib: int) -> float:
    """What the job costs if it runs into its time limit, on demand: spot prices may rise that far."""
    return hourly_usd(resolved, instance, data_gib) * resolved.options.max_hours


def data_volume(instance: Instance, gib: int) -> Volume:
    """A gp3 volume as fast as the instance can read for a while.

    Limits: 3,000 to 80,000 I/O operations a second, at most 500 per GiB beyond the first 3,000; 125 to 2,000 MiB/s,
    at most a quarter per operation: https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html
    """
    wanted = int(min(2000, max(125, instance.ebs_mb_per_s.peak * 1e6 / 2**20)))  # MB/s -> MiB/s
    iops = max(3000, min(wanted * 4, 500 * gib or wanted * 4))  # 0 GiB: not known yet
    return replace(Volume(gib), throughput_mib_per_s=min(wanted, iops // 4), iops=iops)


def io2_volume(gib: int) -> Volume:
    """One volume that all nodes read; io2 allows 500 operations a second per GiB."""
    return Volume(gib, kind="io2", iops=max(100, min(16_000, 500 * gib or 16_000)), throughput_mib_per_s=0)


def in_container(train: TrainConfig, resolved: Resolved) -> TrainConfig:
    """The training as it runs on the nodes: data where boot.sh mounts it; it adds the run folder itself."""
    brings_data = resolved.data_volume != "none" or resolved.options.data_s3 is not None
    return train.model_copy(update={"data_dir": Path("/data")}) if brings_data else train
