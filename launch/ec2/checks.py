"""Checks of a job's settings before any call to AWS, and the choices that follow from them.  Pure."""

from collections.abc import Mapping
from dataclasses import replace
from shlex import quote

from launch.core import catalog
from launch.core.catalog import Instance
from launch.core.job import Job
from launch.core.names import check_job_name
from launch.core.price import CATALOGS, Prices
from launch.core.secrets import read_references
from launch.ec2.data_checks import data_dir_warning, data_volume_of
from launch.ec2.options import IMAGE, Ec2Options
from launch.ec2.prices import highest_usd
from launch.ec2.resolved import DATA_DIR, RUN_DIR, Resolved
from trainer.errors import SettingsError

# The open driver begins with Turing (sm_75): https://docs.aws.amazon.com/dlami/latest/devguide/important-changes.html
NO_DRIVER = ("sm_70",)
NOTHING: Mapping[str, float] = {}


def resolve(job: Job[Ec2Options]) -> Resolved:
    """The job's choices.  Raises SettingsError for what cannot work or may cost too much."""
    options = job.where
    _check_regions(options)
    if options.nodes > options.max_nodes:
        raise SettingsError(f"--nodes {options.nodes} exceeds --max-nodes {options.max_nodes}; raise it if intended.")
    if options.job_name is not None:
        check_job_name(options.job_name)
    instances = tuple(_instance(name, options) for name in options.instance_type)
    if not instances:
        raise SettingsError("--instance-type is empty; give for example g5.2xlarge.")
    if job.train.run_dir is not None or job.train.checkpoint_dir is not None:
        raise SettingsError("the job folder holds the run and its checkpoints; omit --run-dir and --checkpoint-dir.")
    read_references(options.secret)
    _check_init_from(job)
    resolved = Resolved(options, instances, job.train, data_volume_of(job), options.data_s3 or job.train.data_url)
    job.train.check_data(has_data=resolved.brings_data or job.train.data_dir is not None)
    resolved = replace(resolved, warnings=data_dir_warning(job.train, resolved))
    for instance in instances:
        _check_processes(resolved, instance)
        job.train.check_ranks(options.nodes, resolved.nproc(instance))
    job.train.check_limit(options.max_hours)
    _check_market(options, instances)
    check_price(resolved)
    return resolved


# Options that name something of one region.
OF_ONE_REGION = ("zones", "subnet", "security_group", "capacity_reservation", "capacity_block", "ami", "bucket",
                 "data_snapshot")  # fmt: skip


def _check_regions(options: Ec2Options) -> None:
    """Raises SettingsError for what cannot be the same in several regions."""
    if len(options.region) < 2:
        return
    for name in OF_ONE_REGION:
        if getattr(options, name):
            given = f"--{name.replace('_', '-')}"
            raise SettingsError(f"{given} names something of one region; give one --region, or leave {given} out.")


def _instance(name: str, options: Ec2Options) -> Instance:
    if name.startswith(catalog.SAGEMAKER_PREFIX):
        on_ec2 = name.removeprefix(catalog.SAGEMAKER_PREFIX)
        raise SettingsError(f"--instance-type {name} is a SageMaker name; on EC2 give {on_ec2}.")
    instance = catalog.find(name)
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
    if processes is not None and instance.is_gpu and processes > instance.gpus:
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

    data_gib: 0 while the snapshot is unknown; once_usd: what a node's start costs, by type.
    """
    options, limit = resolved.options, resolved.options.max_usd
    for instance in resolved.instances:
        most = highest_usd(resolved, instance, data_gib, prices, once_usd.get(instance.name, 0.0))
        if limit is not None and most > limit:
            raise SettingsError(
                f"{options.nodes} x {instance.name} for {options.max_hours:g} h may cost {most:,.2f} USD, more than "
                f"--max-usd {limit:g}; lower --max-hours or --nodes, or raise --max-usd."
            )
