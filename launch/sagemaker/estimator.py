"""Job + facts -> the arguments of the SDK's PyTorch estimator.  Pure; sdk.py hands them to the SDK."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launch.core.names import HOURLY_TAG, TOOLKIT, Folder, tags
from launch.sagemaker.bundle import Bundle
from launch.sagemaker.channels import Channel
from launch.sagemaker.checks import Resolved
from launch.sagemaker.facts import Facts
from launch.sagemaker.images import Image
from launch.sagemaker.options import SageMakerOptions
from trainer.config import TrainConfig
from trainer.contract import METRIC_PREFIX, SAGEMAKER_CHECKPOINTS, SAGEMAKER_SCRIPT, SAGEMAKER_SECRET
from trainer.settings.argparser import as_text

# The numbers in the trainer's [METRIC] lines that SageMaker draws; it takes 40 at most.
METRICS = (
    "epoch", "updates", "learning_rate", "train_loss", "train_top1", "eval_loss", "eval_top1", "eval_top5",
    "images_per_s", "epoch_s", "step_ms", "data_wait_ms", "forward_ms", "backward_ms", "communication_ms",
    "optimizer_ms", "all_reduce_gb_per_s", "peak_memory_mib", "gpu_utilization_percent",
)  # fmt: skip


@dataclass(frozen=True)
class Estimator:
    """arguments: for sagemaker.pytorch.PyTorch; channels and input_mode: for its fit(); name: of the training job.

    bucket: of the job's folder.
    """

    name: str
    bucket: str
    arguments: Mapping[str, Any]
    channels: tuple[Channel, ...]
    input_mode: str


def estimator_of(
    resolved: Resolved, train: TrainConfig, name: str, folder: Folder, image: Image, bundle: Bundle, facts: Facts
) -> Estimator:
    """The estimator of the training job called `name`, a start of the job whose folder is `folder`."""
    options, ours = resolved.options, tags(folder.job, folder.bucket, facts.now)
    if facts.prices.usd_per_hour:  # whoever adds up what a job cost cannot look it up again
        ours.append({"Key": HOURLY_TAG, "Value": f"{resolved.instance_usd_per_hour:.6g}"})
    arguments: dict[str, Any] = {
        "entry_point": SAGEMAKER_SCRIPT,
        "source_dir": f"s3://{folder.bucket}/{source_key(folder, bundle)}",
        "role": facts.role or _likely_role(options, facts),
        "image_uri": image.uri,
        "instance_type": options.instance_type,
        "instance_count": options.nodes,
        "distribution": {options.distribution: {"enabled": True}},
        "hyperparameters": hyperparameters(train),
        "output_path": f"{folder.uri}/output",
        "max_run": resolved.max_run_s,
        "metric_definitions": metric_definitions(),
        "tags": ours + [{"Key": key, "Value": value} for key, value in resolved.tags.items()],
        # Both are on by default and take part of the GPU's time.
        "disable_profiler": True,
        "debugger_hook_config": False,
        **_storage(resolved, folder),
        **_network(resolved),
    }
    # References to the secrets, not their values; the trainer resolves them.
    references = {f"{SAGEMAKER_SECRET}{name}": reference for name, reference in resolved.secrets.items()}
    if resolved.environment or references:
        arguments["environment"] = {**resolved.environment, **references}
    if options.max_restarts:
        arguments["max_retry_attempts"] = options.max_restarts
    if options.spot:
        arguments |= {"use_spot_instances": True, "max_wait": resolved.max_wait_s}
    if options.warm_pool_s:
        arguments["keep_alive_period_in_seconds"] = options.warm_pool_s
    return Estimator(name, folder.bucket, arguments, resolved.channels, options.input_mode)


def _likely_role(options: SageMakerOptions, facts: Facts) -> str:
    """The role in a plan without an account; an ARN, as the SDK would look up a name."""
    named = options.role or f"{TOOLKIT}-sagemaker"
    return named if named.startswith("arn:") else f"arn:aws:iam::{facts.account or '<account>'}:role/{named}"


def source_key(folder: Folder, bundle: Bundle) -> str:
    """The bundle's key in the bucket.  The SDK requires this file name."""
    return f"{folder.prefix}source/{bundle.digest[:16]}/sourcedir.tar.gz"


def hyperparameters(train: TrainConfig) -> dict[str, str]:
    """The training's settings that differ from the defaults, by their flags' names, as text."""
    return {name.replace("_", "-"): as_text(value) for name, value in train.changed.items()}


def metric_definitions() -> list[dict[str, str]]:
    """The regular expressions for numbers in a line such as `[METRIC] epoch=1 train_loss=2.3`."""
    prefix = METRIC_PREFIX.replace("[", r"\[").replace("]", r"\]")
    return [{"Name": name, "Regex": rf"{prefix}.* {name}=([-+.0-9e]+)"} for name in METRICS]


def _storage(resolved: Resolved, folder: Folder) -> dict[str, Any]:
    options, storage = resolved.options, dict[str, Any]()
    if options.checkpoints:
        # The whole run folder, so that metrics.jsonl survives an interruption, too.
        storage |= {"checkpoint_s3_uri": f"{folder.uri}/run", "checkpoint_local_path": str(SAGEMAKER_CHECKPOINTS)}
    if resolved.disk_gb:
        storage["volume_size"] = resolved.disk_gb
    if options.kms_key is not None:
        storage["output_kms_key"] = options.kms_key
        if resolved.disk_gb:  # local disks are encrypted by the instance, and SageMaker refuses a key for them
            storage["volume_kms_key"] = options.kms_key
    return storage


def _network(resolved: Resolved) -> dict[str, Any]:
    options, network = resolved.options, dict[str, Any]()
    if options.subnet:
        network |= {"subnets": list(options.subnet), "security_group_ids": list(options.security_group)}
    if options.encrypt_traffic:
        network["encrypt_inter_container_traffic"] = True
    return network
