"""The CreateTrainingJob request of a description, with the hyperparameters that AWS's container toolkit reads.  Pure.

With --queue it is the payload of a SubmitServiceJob.

The SDK's estimator makes the same request of the same description; a test compares the two.  The fields:
https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html
"""

import json
from collections.abc import Mapping
from typing import Any

from launch.aws.names import SHARE, client_token, queue_name
from launch.sagemaker.channels import FILE_SYSTEMS, Channel
from launch.sagemaker.description import Description
from launch.sagemaker.names import attempt_name
from trainer.contract import SAGEMAKER_CHECKPOINTS, SAGEMAKER_SCRIPT
from trainer.errors import SettingsError

OPERATION, SUBMIT = "CreateTrainingJob", "SubmitServiceJob"
LOG_LEVEL = 20  # of AWS's toolkit: logging.INFO


def request_of(description: Description) -> dict[str, Any]:
    """The CreateTrainingJob request."""
    request: dict[str, Any] = {
        "TrainingJobName": description.name,
        "RoleArn": description.role,
        "AlgorithmSpecification": {
            "TrainingImage": description.image,
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": name, "Regex": regex} for name, regex in description.metrics.items()],
        },
        "HyperParameters": hyperparameters(description),
        "ResourceConfig": _resources(description),
        "StoppingCondition": _limits(description),
        "OutputDataConfig": {"S3OutputPath": description.output, **_key("KmsKeyId", description.options.kms_key)},
        "Tags": [{"Key": key, "Value": value} for key, value in description.tags.items()],
        "ProfilerConfig": _profiler(description),
        **_options(description),
    }
    if description.resolved.max_wait_s is not None:
        request["EnableManagedSpotTraining"] = True
    return request


def _limits(description: Description) -> dict[str, int]:
    resolved = description.resolved
    limits = {"MaxRuntimeInSeconds": resolved.max_run_s}
    if resolved.max_wait_s is not None:
        limits["MaxWaitTimeInSeconds"] = resolved.max_wait_s
    if description.max_pending_s is not None:
        limits["MaxPendingTimeInSeconds"] = description.max_pending_s
    return limits


def hyperparameters(description: Description) -> dict[str, str]:
    """The settings of the training and of AWS's toolkit, each encoded as JSON, as the toolkit reads them.

    https://github.com/aws/sagemaker-training-toolkit/blob/master/src/sagemaker_training/params.py
    """
    options = description.options
    toolkits: dict[str, Any] = {
        "sagemaker_submit_directory": description.source,
        "sagemaker_program": SAGEMAKER_SCRIPT,
        "sagemaker_container_log_level": LOG_LEVEL,
        "sagemaker_job_name": description.name,
        "sagemaker_region": description.region,
    }
    if len(options.types) == 1:  # otherwise the toolkit detects the type of its instance
        toolkits["sagemaker_instance_type"] = description.instance_type
    if options.distribution == "pytorchddp":  # uses the toolkit's module for smdistributed, without that library
        toolkits |= {
            "sagemaker_distributed_dataparallel_enabled": True,
            "sagemaker_distributed_dataparallel_custom_mpi_options": description.mpi_options,
        }
    else:
        toolkits["sagemaker_torch_distributed_enabled"] = True
    given = {**description.hyperparameters, **toolkits}
    return {name: json.dumps(value) for name, value in given.items()}


def _profiler(description: Description) -> dict[str, Any]:
    if description.options.profiler:
        return {"S3OutputPath": description.output, "DisableProfiler": False}
    return {"DisableProfiler": True}  # it is on by default and takes part of the GPU's time


def _resources(description: Description) -> dict[str, Any]:
    options = description.options
    resources: dict[str, Any] = {"InstanceCount": options.nodes, **_types(description)}
    # The field is required, even for instances without such a disk; the SDK sends the same number.
    resources["VolumeSizeInGB"] = description.resolved.disk_gb or 30
    if options.warm_pool_s:
        resources["KeepAlivePeriodInSeconds"] = options.warm_pool_s
    return {**resources, **_key("VolumeKmsKeyId", description.disk_key)}


def _key(name: str, key: str | None) -> dict[str, str]:
    return {} if key is None else {name: key}


def _types(description: Description) -> dict[str, Any]:
    """https://docs.aws.amazon.com/sagemaker/latest/dg/train-instance-preferences.html"""
    options = description.options
    if len(options.types) > 1:
        first, *others = [{"InstanceType": name} for name in options.types]
        return {"InstancePreferences": [{**first, **_plans(options.training_plan)}, *others]}
    return {"InstanceType": description.instance_type, **_key("TrainingPlanArn", options.training_plan)}


def _plans(plan: str | None) -> dict[str, list[str]]:
    """On demand without: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_InstancePreference.html"""
    return {} if plan is None else {"TrainingPlanArns": [plan]}


def _options(description: Description) -> dict[str, Any]:
    """The optional fields."""
    options = description.options
    fields = dict[str, Any]()
    if description.channels:
        fields["InputDataConfig"] = [_channel(channel, options.input_mode) for channel in description.channels]
    if description.environment:
        fields["Environment"] = dict(description.environment)
    if description.checkpoints is not None:
        fields["CheckpointConfig"] = {"S3Uri": description.checkpoints, "LocalPath": str(SAGEMAKER_CHECKPOINTS)}
    if options.subnet:
        fields["VpcConfig"] = {
            "Subnets": list(options.subnet),
            "SecurityGroupIds": list(options.security_group),
        }
    if options.encrypt_traffic:
        fields["EnableInterContainerTrafficEncryption"] = True
    if options.max_restarts:
        fields["RetryStrategy"] = {"MaximumRetryAttempts": options.max_restarts}
    return {**fields, **_debugging(description)}


def _debugging(description: Description) -> dict[str, Any]:
    """The fields for debugging and tracking."""
    options = description.options
    fields = dict[str, Any]()
    if options.remote_debug:
        fields["RemoteDebugConfig"] = {"EnableRemoteDebug": True}
    if options.infra_check:
        fields["InfraCheckConfig"] = {"EnableInfraCheck": True}
    if description.mlflow:
        fields["MlflowConfig"] = dict(description.mlflow)
    if options.experiment is not None:
        fields["ExperimentConfig"] = {
            "ExperimentName": options.experiment,
            "TrialComponentDisplayName": description.name,
        }
    return fields


def _channel(channel: Channel, mode: str) -> dict[str, Any]:
    if channel.kind == "s3":
        source: Mapping[str, Any] = {
            "S3DataSource": {
                "S3DataType": "S3Prefix",
                "S3Uri": channel.place,
                "S3DataDistributionType": "FullyReplicated",
            }
        }
        return {"ChannelName": channel.name, "DataSource": source, "InputMode": mode}
    source = {
        "FileSystemDataSource": {
            "FileSystemId": channel.place,
            "FileSystemType": FILE_SYSTEMS[channel.kind],
            "DirectoryPath": channel.path,
            "FileSystemAccessMode": "ro",
        }
    }
    return {"ChannelName": channel.name, "DataSource": source}


# ---- through a queue

# https://docs.aws.amazon.com/batch/latest/userguide/service_limits.html
PAYLOAD_BYTES = 10 * 1024
# What follows an attempt that failed, by the first pattern that fits its reason.  Batch tries again by itself without
# capacity, and SageMaker restarts a spot job in its attempt.  The second keeps what a training prints from those below.
# https://docs.aws.amazon.com/batch/latest/userguide/service-job-retries.html
RULES = (
    ("RETRY", "*exit code 75:*"),
    ("EXIT", "*AlgorithmError*"),
    ("RETRY", "*InternalServerError*"),
    ("RETRY", "*ResourceLimitExceeded*"),
    ("EXIT", "*"),  # without it all is tried again
)


def submission(description: Description, *, has_shares: bool) -> dict[str, Any]:
    """The SubmitServiceJob that puts the training job into a queue.

    Batch rejects a repeated request by its token.  There is no timeoutConfig, which might count the time that SageMaker
    waits for instances: the payload's StoppingCondition limits each attempt.  The tags are the service job's, as in
    SageMaker's SDK: https://github.com/aws/sagemaker-python-sdk, aws_batch/batch_api_helper.py
    """
    options = description.options
    payload = {**request_of(description), "TrainingJobName": attempt_name(description.folder.job)}
    del payload["Tags"]
    payload.pop("RetryStrategy", None)  # Batch tries again
    text = json.dumps(payload, separators=(",", ":"))
    request: dict[str, Any] = {
        "jobName": description.name,
        "jobQueue": queue_name(options.queue or ""),
        "serviceJobType": "SAGEMAKER_TRAINING",
        "serviceRequestPayload": text,
        "retryStrategy": {
            "attempts": description.resolved.attempts,
            "evaluateOnExit": [{"action": action, "onStatusReason": pattern} for action, pattern in RULES],
        },
        "tags": dict(description.tags),
        "clientToken": client_token(options.queue, description.name, text),
    }
    if options.priority is not None:
        request["schedulingPriority"] = options.priority
    if has_shares:
        request["shareIdentifier"] = options.share or SHARE
    return request


def too_long(request: Mapping[str, Any]) -> SettingsError | None:
    """The error for a payload that Batch does not take."""
    size = len(request["serviceRequestPayload"].encode())
    if size <= PAYLOAD_BYTES:
        return None
    return SettingsError(
        f"the request for the training job has {size:,} bytes, and a queue takes {PAYLOAD_BYTES:,}; shorten "
        "--environment, --metrics or the training's arguments, or start it without --queue."
    )
