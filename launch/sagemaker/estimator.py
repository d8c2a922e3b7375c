"""Job + facts -> the arguments of the SDK's PyTorch estimator.  Pure: sdk.py is where the SDK gets them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launch.core.names import TOOLKIT, Folder, tags
from launch.sagemaker.bundle import Bundle
from launch.sagemaker.channels import Channel
from launch.sagemaker.checks import Resolved
from launch.sagemaker.facts import Facts
from launch.sagemaker.images import Image
from launch.sagemaker.options import SageMakerOptions
from trainer.config import TrainConfig
from trainer.contract import METRIC_PREFIX, SAGEMAKER_CHECKPOINTS, SAGEMAKER_SCRIPT, SAGEMAKER_SECRET
from trainer.settings.argparser import as_text

# What SageMaker draws, of the numbers in the trainer's [METRIC] lines; it takes 40 at most.
METRICS = (
    "epoch", "updates", "learning_rate", "train_loss", "train_top1", "eval_loss", "eval_top1", "eval_top5",
    "images_per_s", "epoch_s", "step_ms", "data_wait_ms", "forward_ms", "backward_ms", "communication_ms",
    "optimizer_ms", "all_reduce_gb_per_s", "peak_memory_mib", "gpu_utilization_percent",
)  # fmt: skip


@dataclass(frozen=True)
class Estimator:
    """arguments: of sagemaker.pytorch.PyTorch; channels and input_mode: of its fit(); name: the training job's."""

    name: str
    arguments: Mapping[str, Any]
    channels: tuple[Channel, ...]
    input_mode: str


def estimator_of(
    resolved: Resolved, train: TrainConfig, run: str, folder: Folder, image: Image, bundle: Bundle, facts: Facts
) -> Estimator:
    """The estimator of the training job called `run`, of the job whose folder is `folder`."""
    options, ours = resolved.options, tags(folder.job, folder.bucket, facts.now)
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
        # Both would be switched on otherwise, and take part of the GPU's time.
        "disable_profiler": True,
        "debugger_hook_config": False,
        **_storage(resolved, folder),
        **_network(resolved),
    }
    # Not the secrets: where each is kept, for the trainer to read it there.
    where = {f"{SAGEMAKER_SECRET}{name}": reference for name, reference in resolved.secrets.items()}
    if resolved.environment or where:
        arguments["environment"] = {**resolved.environment, **where}
    if options.max_restarts:
        arguments["max_retry_attempts"] = options.max_restarts
    if options.spot:
        arguments |= {"use_spot_instances": True, "max_wait": resolved.max_wait_s}
    if options.warm_pool_s:
        arguments["keep_alive_period_in_seconds"] = options.warm_pool_s
    return Estimator(run, arguments, resolved.channels, options.input_mode)


def _likely_role(options: SageMakerOptions, facts: Facts) -> str:
    """For a plan without an account: as an ARN, for the SDK would look up a name."""
    named = options.role or f"{TOOLKIT}-sagemaker"
    return named if named.startswith("arn:") else f"arn:aws:iam::{facts.account or '<account>'}:role/{named}"


def source_key(folder: Folder, bundle: Bundle) -> str:
    """Where the bundle lies in the bucket.  The SDK wants this file name."""
    return f"{folder.prefix}source/{bundle.digest[:16]}/sourcedir.tar.gz"


def hyperparameters(train: TrainConfig) -> dict[str, str]:
    """The training's settings that are not the default ones, by their flags' names, as text."""
    fields = type(train).model_fields
    values = {name: getattr(train, name) for name in fields if getattr(train, name) != fields[name].default}
    return {name.replace("_", "-"): as_text(value) for name, value in values.items()}


def metric_definitions() -> list[dict[str, str]]:
    """How SageMaker finds the numbers in a line such as `[METRIC] epoch=1 train_loss=2.3`."""
    prefix = METRIC_PREFIX.replace("[", r"\[").replace("]", r"\]")
    return [{"Name": name, "Regex": rf"{prefix}.* {name}=([-+.0-9e]+)"} for name in METRICS]


def _storage(resolved: Resolved, folder: Folder) -> dict[str, Any]:
    options, found = resolved.options, dict[str, Any]()
    if options.checkpoints:
        # The run folder, where it lies on EC2, too: metrics.jsonl survives an interruption with the checkpoints.
        found |= {"checkpoint_s3_uri": f"{folder.uri}/run", "checkpoint_local_path": str(SAGEMAKER_CHECKPOINTS)}
    if resolved.disk_gb:
        found["volume_size"] = resolved.disk_gb
    if options.kms_key is not None:
        found["output_kms_key"] = options.kms_key
        if resolved.disk_gb:  # an instance's own disks have a key of their own, and SageMaker refuses another
            found["volume_kms_key"] = options.kms_key
    return found


def _network(resolved: Resolved) -> dict[str, Any]:
    options, found = resolved.options, dict[str, Any]()
    if options.subnet:
        found |= {"subnets": list(options.subnet), "security_group_ids": list(options.security_group)}
    if options.encrypt_traffic:
        found["encrypt_inter_container_traffic"] = True
    return found
