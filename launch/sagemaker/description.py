"""Job + facts -> a description of the training job, from which request.py and sdk.py make the request.  Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from launch.aws import upload
from launch.aws.containers import Image
from launch.aws.names import HOURLY_TAG, TOOLKIT, Folder, tags
from launch.core.training.base import Training
from launch.sagemaker.bundle import Bundle, config_of, environment_of
from launch.sagemaker.channels import Channel
from launch.sagemaker.checks import Resolved
from launch.sagemaker.facts import Facts
from launch.sagemaker.names import REGISTER_TAG
from launch.sagemaker.options import SageMakerOptions
from trainer.contract import (
    METRIC_PREFIX,
    NODE_GBPS,
    NODE_GPUS,
    SAGEMAKER_ARCHIVE,
    SAGEMAKER_CHANNEL,
    SAGEMAKER_INFERENCE,
    SAGEMAKER_SECRET,
)


@dataclass(frozen=True)
class Description:
    """The content of a request for a training job, beyond the settings."""

    resolved: Resolved  # the settings
    name: str  # of the training job: one start of the job
    region: str
    folder: Folder  # of the job
    role: str
    image: str
    source: str  # the bundle in S3
    hyperparameters: Mapping[str, Any]
    environment: Mapping[str, str]
    metrics: Mapping[str, str]
    tags: Mapping[str, str]
    output: str
    checkpoints: str | None
    channels: tuple[Channel, ...]
    mlflow: Mapping[str, str]

    @property
    def options(self) -> SageMakerOptions:
        return self.resolved.options

    @property
    def instance_type(self) -> str:
        """The first type; only boto3 supports several."""
        return self.options.types[0]

    @property
    def mpi_options(self) -> str:
        """For mpirun in AWS's toolkit, which otherwise has NCCL of every rank flood the log."""
        return f"--NCCL_DEBUG {self.resolved.environment.get('NCCL_DEBUG', 'WARN')}"

    @property
    def max_pending_s(self) -> int | None:
        hours = self.options.max_pending_hours
        return None if hours is None else math.ceil(hours * 3600)

    @property
    def disk_key(self) -> str | None:
        """Local disks are encrypted by the instance, and SageMaker rejects a key for them."""
        return self.options.kms_key if self.resolved.disk_gb else None


def _expected(resolved: Resolved, train: Training) -> dict[str, str]:
    """The instances' expected hardware, for --health-check; empty if several types are possible."""
    if not train.health_check or len(resolved.instances) > 1 or not resolved.instance.is_known:
        return {}
    return {NODE_GPUS: str(resolved.instance.gpus), NODE_GBPS: f"{resolved.instance.network_gbps.base:g}"}


def describe(
    resolved: Resolved, train: Training, name: str, folder: Folder, image: Image, bundle: Bundle, facts: Facts
) -> Description:
    """The training job called `name`, a start of the job in `folder`."""
    options = resolved.options
    # References to the secrets, not their values; the trainer resolves them.
    references = {f"{SAGEMAKER_SECRET}{name}": reference for name, reference in resolved.secrets.items()}
    return Description(
        resolved=resolved,
        name=name,
        region=facts.region,
        folder=folder,
        role=facts.role or _likely_role(options, facts),
        image=facts.image or image.uri,
        source=f"s3://{folder.bucket}/{source_key(folder, bundle)}",
        hyperparameters=train.hyperparameters,
        environment={
            **_expected(resolved, train),
            **resolved.environment,
            **environment_of(options),
            **references,
            **_inference(options),
        },
        metrics=metrics(options.metrics or train.metrics),
        tags=_tags(resolved, folder, facts),
        output=f"{folder.uri}/output",
        # The whole run folder, so that metrics.jsonl survives an interruption, too.
        checkpoints=f"{folder.uri}/run" if options.checkpoints else None,
        channels=(*resolved.channels, *_script(folder, train, facts.now)),
        mlflow=config_of(options, train, name),
    )


def _tags(resolved: Resolved, folder: Folder, facts: Facts) -> dict[str, str]:
    ours = {tag["Key"]: tag["Value"] for tag in tags(folder.job, folder.bucket, facts.now, owner=facts.owner)}
    if facts.prices.usd_per_hour:  # to compute the job's cost later, when prices may have changed
        ours[HOURLY_TAG] = f"{resolved.instance_usd_per_hour:.6g}"
    if resolved.options.register is not None:  # for the launcher that follows the job to its end
        ours[REGISTER_TAG] = resolved.options.register
    return {**ours, **resolved.tags}


def _inference(options: SageMakerOptions) -> dict[str, str]:
    """The setting by which the trainer adds inference code to the model."""
    return {} if options.register is None else {SAGEMAKER_INFERENCE: "1"}


def _likely_role(options: SageMakerOptions, facts: Facts) -> str:
    """The role for a plan if look-ups failed; an ARN, as the SDK would look up a name."""
    named = options.role or f"{TOOLKIT}-sagemaker"
    return named if named.startswith("arn:") else f"arn:aws:iam::{facts.account or '<account>'}:role/{named}"


def source_key(folder: Folder, bundle: Bundle) -> str:
    """The bundle's key in the bucket.  The SDK requires this file name."""
    return f"{folder.prefix}source/{bundle.digest[:16]}/sourcedir.tar.gz"


def _script(folder: Folder, train: Training, now: datetime) -> tuple[Channel, ...]:
    """The channel by which SageMaker mounts a script's source in any image."""
    if train.source is None:
        return ()
    place = upload.key_of(train.digest, now).removesuffix(SAGEMAKER_ARCHIVE)
    return (Channel(SAGEMAKER_CHANNEL, "s3", f"s3://{folder.bucket}/{place}"),)


def metrics(names: Sequence[str]) -> dict[str, str]:
    """Regular expressions for the numbers in lines such as `[METRIC] epoch=1 train_loss=2.3`, by metric name."""
    prefix = METRIC_PREFIX.replace("[", r"\[").replace("]", r"\]")
    return {name: rf"{prefix}.* {name}=([-+.0-9e]+)" for name in names}
