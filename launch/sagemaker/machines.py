"""The instance types that a job asks for, and where their capacity comes from.  Pure."""

import re
from collections.abc import Sequence

from launch.core import catalog
from launch.core.catalog import Instance
from launch.sagemaker.options import SageMakerOptions
from trainer.errors import SettingsError

MOST_TYPES = 5  # of InstancePreferences


def instances_of(options: SageMakerOptions) -> tuple[Instance, ...]:
    """The types of a job, the preferred one first.  Raises SettingsError."""
    instances = tuple(_instance(name, options) for name in options.types)
    if not instances:
        raise SettingsError("--instance-type is empty; give for example ml.g5.2xlarge.")
    if len({one.name for one in instances}) < len(instances) or len(instances) > MOST_TYPES:
        raise SettingsError(f"--instance-type {options.instance_type}: at most {MOST_TYPES} types, each once.")
    if len({one.is_gpu for one in instances}) > 1:
        raise SettingsError(f"--instance-type {options.instance_type}: give types with GPUs, or types without.")
    return instances


def check_capacity(options: SageMakerOptions, instances: Sequence[Instance]) -> None:
    """Raises SettingsError where the options contradict about where the instances come from.

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


def _instance(name: str, options: SageMakerOptions) -> Instance:
    if not name.startswith(catalog.SAGEMAKER_PREFIX):
        raise SettingsError(f"--instance-type {name} is EC2's name; SageMaker calls it ml.{name}.")
    instance = catalog.unknown(name.removeprefix(catalog.SAGEMAKER_PREFIX)) or catalog.find(name)
    if not instance.is_gpu and not options.allow_cpu:
        raise SettingsError(f"--instance-type {name} has no GPU; add --allow-cpu if you mean it.")
    if instance.name == "p5.48xlarge" and options.distribution == "pytorchddp":
        raise SettingsError(
            f"SageMaker's SDK does not support pytorchddp on {name}; give --distribution torch_distributed."
        )
    return instance
