"""Checks the settings of a job before any call to AWS, and resolves their defaults.  Pure."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from launch.aws.names import TOOLKIT
from launch.core import catalog
from launch.core.catalog import Instance
from launch.core.job import Job, check_job_name
from launch.core.options import read_pairs, read_variables
from launch.core.price import CATALOGS, HOURS_PER_MONTH, Prices
from launch.core.secrets import read_references
from launch.core.training.base import Training
from launch.sagemaker.bundle import check_trackers
from launch.sagemaker.channels import Channel, hold_images, read_channels
from launch.sagemaker.images import check_image
from launch.sagemaker.names import ATTEMPT, job_of
from launch.sagemaker.options import MOST_HOURS, SageMakerOptions
from trainer.contract import SAGEMAKER_CHANNEL, SAGEMAKER_HYPERPARAMETER
from trainer.errors import SettingsError

DISK_GB, DATA_DISK_GB = 30, 250  # ImageNet takes 150 GB
INPUT_FOLDER = "/opt/ml/input/data/"

# Billing ends after the upload of the result; a container that is stopped has two minutes.
STOP_RETRY_S = 600

# us-east-1, USD per GB and month of a training job's disk; price unverified, 2026-11-21.
DISK_USD = 0.14


LONGEST_VALUE, MOST_METRICS = 2500, 40

# Text that no shell changes.
_PLAIN = re.compile(r"[A-Za-z0-9_\-+=:,./@%]*")


@dataclass(frozen=True)
class Resolved:
    """The options with all defaults resolved."""

    options: SageMakerOptions
    instances: tuple[Instance, ...]
    channels: tuple[Channel, ...]
    tags: Mapping[str, str]
    environment: Mapping[str, str]
    secrets: Mapping[str, str]
    disk_gb: int  # of the EBS volume that SageMaker adds to each instance; 0 for types with local disks
    max_run_s: int
    max_wait_s: int | None  # None on demand
    prices: Prices = CATALOGS

    @property
    def detaches(self) -> bool:
        return self.options.detach or not self.options.wait or self.options.queue is not None

    @property
    def instance(self) -> Instance:
        """The first and preferred type."""
        return self.instances[0]

    @property
    def type(self) -> str:
        """The first type, as SageMaker names it."""
        return f"{catalog.SAGEMAKER_PREFIX}{self.instance.name}"

    @property
    def processes(self) -> int:
        """Ranks of the whole job: AWS's toolkit starts one per GPU, or one on a CPU."""
        return self.options.nodes * max(1, self.instance.gpus)

    @property
    def is_priced(self) -> bool:
        """Whether the price of every type is known."""
        return all(
            one.sagemaker_usd_per_hour or f"{catalog.SAGEMAKER_PREFIX}{one.name}" in self.prices.usd_per_hour
            for one in self.instances
        )

    def on(self, instance: Instance) -> "Resolved":
        """The same job on one of its types."""
        return replace(self, instances=(instance,))

    @property
    def usd_per_hour(self) -> float:
        """USD per hour of all instances with their disks, on demand."""
        disk = self.disk_gb * DISK_USD / HOURS_PER_MONTH * self.prices.storage
        return self.options.nodes * (self.instance_usd_per_hour + disk)

    @property
    def instance_usd_per_hour(self) -> float:
        """USD per hour of one instance of the most expensive type, in the region if known, else in us-east-1."""
        return max(
            self.prices.usd_per_hour.get(f"{catalog.SAGEMAKER_PREFIX}{one.name}", one.sagemaker_usd_per_hour or 0.0)
            for one in self.instances
        )

    @property
    def attempts(self) -> int:
        """Training jobs at most: a queue tries again, and each attempt has the whole time limit."""
        return min(MOST_ATTEMPTS, 1 + self.options.max_restarts) if self.options.queue is not None else 1

    @property
    def most_s(self) -> float:
        """Maximum billed seconds: every attempt reaches its time limit, and the warm pool stays unused."""
        return self.attempts * (self.max_run_s + STOP_RETRY_S) + self.options.warm_pool_s

    @property
    def most_usd(self) -> float:
        """The cost of most_s."""
        return self.usd_per_hour * self.most_s / 3600


def resolve(job: Job[SageMakerOptions], found: Mapping[str, Instance] = MappingProxyType({})) -> Resolved:
    """Resolve the job's settings.  Raises SettingsError for those that cannot work or could cost too much.

    found: types that the catalog lacks, by their names on EC2, as EC2 describes them.
    """
    options = job.where
    _check_names(options)
    instances, channels = instances_of(options, found), read_channels(options.data)
    _check_paths(job.train)
    _check_words(job.train)
    _check_data(job.train, options, channels)
    job.train.check_data(has_data=bool(channels))
    _check_channel_of_script(job.train, channels)
    _check_metrics(options)
    job.train.check_limit(options.max_hours)
    _check_network(options, channels)
    _check_spot(options)
    _check_queue(options)
    check_capacity(options, instances)
    _check_key(options, instances)
    for instance in instances if options.image is not None else ():
        check_image(options.image or "", instance)
    resolved = Resolved(
        options=options,
        instances=instances,
        channels=channels,
        tags=_tags(options.tags),
        environment=read_variables("--environment", options.environment),
        secrets=read_references(options.secret),
        disk_gb=max(_disk_gb(options, instance, channels) for instance in instances),
        max_run_s=math.ceil(options.max_hours * 3600),
        max_wait_s=_max_wait_s(options),
    )
    for instance in instances:
        job.train.check_ranks(options.nodes, resolved.on(instance).processes // options.nodes)
    check_trackers(job.train, options, resolved.environment)
    check_price(resolved)
    return resolved


def _check_metrics(options: SageMakerOptions) -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_AlgorithmSpecification.html, MetricDefinitions"""
    for name in options.metrics:
        if not re.fullmatch(r"[A-Za-z_]\w{0,99}", name, re.ASCII):
            raise SettingsError(
                f"--metrics {name}: give names as in the script's [METRIC] lines: letters, digits and _."
            )
    if len(options.metrics) > MOST_METRICS:
        raise SettingsError(f"--metrics has {len(options.metrics)} names, and SageMaker takes {MOST_METRICS}.")


def _check_names(options: SageMakerOptions) -> None:
    if options.nodes > options.max_nodes:
        raise SettingsError(
            f"--nodes {options.nodes} is more than --max-nodes {options.max_nodes}; raise --max-nodes if you mean it."
        )
    if options.job_name is None:
        return
    check_job_name(options.job_name)
    if job_of(options.job_name) != options.job_name:
        raise SettingsError(
            f"--job-name {options.job_name}: names with this ending are for restarted jobs; choose another."
        )
    if options.job_name.startswith(ATTEMPT):
        raise SettingsError(f"--job-name {options.job_name}: {ATTEMPT} begins AWS Batch's own names; choose another.")


def _check_paths(train: Training) -> None:
    """Raise SettingsError for paths that SageMaker's container fixes or cannot read."""
    if train.run_dir is not None or train.checkpoint_dir is not None:
        raise SettingsError("--run-dir and --checkpoint-dir are fixed in SageMaker's container; leave them out.")
    if train.data_dir is not None:
        raise SettingsError(
            "--data-dir is fixed in SageMaker's container; give the data with --data s3://BUCKET/FOLDER."
        )
    if train.init_from is not None and not str(train.init_from).startswith(INPUT_FOLDER):
        raise SettingsError(
            f"--init-from {train.init_from} is not in the container; bring it as a channel: "
            f"--data weights=s3://BUCKET/FOLDER --init-from {INPUT_FOLDER}weights/model.pt."
        )


def _check_words(train: Training) -> None:
    """Raise SettingsError for values that a shell would change: AWS's toolkit 5.1.0, in many images, runs one."""
    for name, value in train.hyperparameters.items():
        is_passed_on = name != SAGEMAKER_HYPERPARAMETER  # as a flag; the script's words are read from a file
        if is_passed_on and not _PLAIN.fullmatch(value):
            raise SettingsError(
                f"--{name} {value!r}: a shell in SageMaker's container would split or change it; use letters, digits "
                "and _ - + = : , . / @ % only."
            )
        # https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html, HyperParameters; a
        # script's folders are added later.
        length = len(json.dumps(value))
        if length > LONGEST_VALUE - 300:
            what = f"--{name}" if is_passed_on else "the script's arguments"
            raise SettingsError(
                f"{what}: {length:,} characters, and SageMaker takes {LONGEST_VALUE:,} in a setting; put long values "
                "into a file of the source."
            )


def _check_data(train: Training, options: SageMakerOptions, channels: tuple[Channel, ...]) -> None:
    has_data = hold_images(channels) if train.reads_folder else bool(channels)
    if train.needs_data and not has_data and train.data_url is None:
        raise SettingsError(
            f"data set {train.dataset} is neither in the image nor downloaded; give --data s3://BUCKET/FOLDER with "
            "train/ and val/ in it, or --data train=s3://BUCKET/FOLDER,val=s3://BUCKET/FOLDER."
        )
    if options.input_mode == "FastFile" and not any(channel.kind == "s3" for channel in channels):
        raise SettingsError("--input-mode FastFile is for data in S3; give --data s3://BUCKET/FOLDER, or leave it out.")


def _check_channel_of_script(train: Training, channels: tuple[Channel, ...]) -> None:
    if train.source is not None and any(channel.name == SAGEMAKER_CHANNEL for channel in channels):
        raise SettingsError(
            f"--data {SAGEMAKER_CHANNEL}=...: the channel of that name brings the script; choose another name."
        )


def _check_network(options: SageMakerOptions, channels: tuple[Channel, ...]) -> None:
    if bool(options.subnet) != bool(options.security_group):
        raise SettingsError("--subnet and --security-group go together; give both for your VPC, or neither.")
    systems = [channel.uri for channel in channels if channel.kind != "s3"]
    if systems and not options.subnet:
        raise SettingsError(f"{systems[0]} is in a VPC; give its --subnet and a --security-group that can reach it.")


def _check_key(options: SageMakerOptions, instances: Iterable[Instance]) -> None:
    """SageMaker rejects a disk key for types with local disks, and a request has one key for all its types.

    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ResourceConfig.html, VolumeKmsKeyId
    """
    has_disks = {bool(instance.nvme_gb): f"{catalog.SAGEMAKER_PREFIX}{instance.name}" for instance in instances}
    if options.kms_key is not None and len(has_disks) > 1:
        raise SettingsError(
            f"--kms-key is for the disks, too: SageMaker rejects it for {has_disks[True]}, which has local disks, and "
            f"takes it for {has_disks[False]}; give types of one kind."
        )


def _check_spot(options: SageMakerOptions) -> None:
    if options.spot and options.warm_pool_s:
        raise SettingsError("--warm-pool-s keeps instances and --spot returns them; leave one of them out.")
    if options.spot and not options.checkpoints:
        raise SettingsError("--spot without checkpoints loses everything when interrupted; drop --no-checkpoints.")
    if options.max_wait_hours is not None and not options.spot:
        raise SettingsError("--max-wait-hours is the limit of a spot job, waiting included; add --spot.")
    if options.max_wait_hours is not None and options.max_wait_hours < options.max_hours:
        raise SettingsError(
            f"--max-wait-hours {options.max_wait_hours:g} includes the training of up to --max-hours "
            f"{options.max_hours:g}; raise it, or lower --max-hours."
        )


MOST_ATTEMPTS = 10  # https://docs.aws.amazon.com/batch/latest/userguide/service_limits.html


def _check_queue(options: SageMakerOptions) -> None:
    if options.queue is None:
        flags = [f"--{name}" for name in ("priority", "share") if getattr(options, name) is not None]
        if flags:
            raise SettingsError(f"{' and '.join(flags)}: of a job in a queue; add --queue, or leave it out.")
    elif options.warm_pool_s:
        raise SettingsError("--warm-pool-s: instances that are kept would not count in the queue; leave it out.")
    elif options.max_pending_hours is not None:
        # https://docs.aws.amazon.com/batch/latest/userguide/sm_job_stuck_in_runnable_capacity.html
        raise SettingsError("--max-pending-hours: the queue would try again after it, without end; leave it out.")


def _max_wait_s(options: SageMakerOptions) -> int | None:
    if not options.spot:
        return None
    hours = options.max_wait_hours or min(2 * options.max_hours, MOST_HOURS)
    return math.ceil(hours * 3600)


def _disk_gb(options: SageMakerOptions, instance: Instance, channels: tuple[Channel, ...]) -> int:
    """GB of EBS; 0 for local disks: https://docs.aws.amazon.com/sagemaker/latest/dg/host-instance-storage.html"""
    if instance.nvme_gb:
        if (options.volume_gb or 0) > instance.nvme_gb:
            raise SettingsError(
                f"--volume-gb {options.volume_gb}: ml.{instance.name} has {instance.nvme_gb} GB and takes no other "
                "disk; lower it, choose a larger type, or give --input-mode FastFile."
            )
        return 0
    is_copied = options.input_mode == "File" and any(channel.kind == "s3" for channel in channels)
    return options.volume_gb or (DATA_DISK_GB if is_copied else DISK_GB)


def _tags(words: Iterable[str]) -> dict[str, str]:
    tags = read_pairs("--tags", words)
    for key in tags:
        if key.lower().startswith(("aws:", f"{TOOLKIT}:")) or key == "Name":
            raise SettingsError(f"--tags {key}: this name is reserved for AWS or the toolkit; choose another.")
    return tags


def check_price(resolved: Resolved) -> None:
    """Raise SettingsError for a job that may cost more than --max-usd."""
    options, limit, most = resolved.options, resolved.options.max_usd, resolved.most_usd
    if limit is not None and not resolved.is_priced:
        raise SettingsError(
            f"no price is known for {options.instance_type}, so --max-usd {limit:g} cannot be kept; leave it out."
        )
    if limit is not None and most > limit:
        raise SettingsError(
            f"{options.nodes} x {options.instance_type} for {options.max_hours:g} h can cost {most:,.2f} USD, more "
            f"than --max-usd {limit:g}; lower --max-hours or --nodes, or raise --max-usd."
        )


MOST_TYPES = 5  # of InstancePreferences


def instances_of(options: SageMakerOptions, found: Mapping[str, Instance]) -> tuple[Instance, ...]:
    """The instance types of a job, the preferred one first.  Raises SettingsError."""
    instances = tuple(_instance(name, options, found) for name in options.types)
    if not instances:
        raise SettingsError("--instance-type is empty; give for example ml.g5.2xlarge.")
    if len({one.name for one in instances}) < len(instances) or len(instances) > MOST_TYPES:
        raise SettingsError(f"--instance-type {options.instance_type}: at most {MOST_TYPES} types, each once.")
    if len({one.is_gpu for one in instances}) > 1:
        raise SettingsError(f"--instance-type {options.instance_type}: give types with GPUs, or types without.")
    return instances


def check_capacity(options: SageMakerOptions, instances: Sequence[Instance]) -> None:
    """Raise SettingsError for contradictory sources of capacity.

    https://docs.aws.amazon.com/sagemaker/latest/dg/train-instance-preferences.html
    """
    _check_list(options)
    _check_limit(options, instances)
    _check_plan(options)


def _check_list(options: SageMakerOptions) -> None:
    if len(options.types) > 1 and options.spot:
        raise SettingsError(
            "SageMaker waits for spot capacity of one type; give one --instance-type, or leave --spot out."
        )
    if options.beyond_sdk_2 and options.through == "estimator":
        raise SettingsError(f"{options.beyond_sdk_2}: SageMaker's SDK 2 cannot ask for that; give --through boto3.")


def _check_limit(options: SageMakerOptions, instances: Sequence[Instance]) -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_StoppingCondition.html, MaxPendingTimeInSeconds"""
    if options.max_pending_hours is not None and not any(instance.is_gpu for instance in instances):
        raise SettingsError(
            f"--max-pending-hours {options.max_pending_hours:g}: SageMaker waits for types with GPUs only; leave it "
            "out."
        )


def _check_plan(options: SageMakerOptions) -> None:
    if options.training_plan is None:
        return
    if not re.fullmatch(r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:\d{12}:training-plan/.+", options.training_plan):
        raise SettingsError(
            f"--training-plan {options.training_plan}: must look like "
            "arn:aws:sagemaker:us-east-1:111122223333:training-plan/NAME."
        )
    if options.spot:
        raise SettingsError("--training-plan is capacity that is reserved for you, and --spot is not; leave one out.")


def _instance(name: str, options: SageMakerOptions, found: Mapping[str, Instance]) -> Instance:
    on_ec2 = name.removeprefix(catalog.SAGEMAKER_PREFIX)
    instance = found.get(on_ec2) or catalog.unknown(on_ec2) or catalog.find(name)
    if not instance.is_gpu and not options.allow_cpu:
        raise SettingsError(f"--instance-type {name} has no GPU; add --allow-cpu if you mean it.")
    if instance.name == "p5.48xlarge" and options.distribution == "pytorchddp":
        raise SettingsError(
            f"SageMaker's SDK does not support pytorchddp on {name}; give --distribution torch_distributed."
        )
    return instance
