"""Sends the request by the PyTorch estimator of SageMaker's Python SDK 2, which AWS supports until 2027-07-06.

request.py makes the request; if the estimator's differs, nothing is sent.
"""

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from launch.aws.client import Aws
from launch.core.errors import NotSetUp
from launch.sagemaker.channels import FILE_SYSTEMS, Channel
from launch.sagemaker.description import Description
from launch.sagemaker.options import SageMakerOptions
from launch.sagemaker.request import OPERATION
from trainer.contract import SAGEMAKER_CHECKPOINTS, SAGEMAKER_SCRIPT
from trainer.errors import SettingsError

HEADING = "the estimator, sagemaker.pytorch.PyTorch, which makes the last request:"
NO_METADATA = "AWS_EC2_METADATA_DISABLED"
# Replaces the SDK's configuration: no telemetry, and no configuration file of this machine changes the request.
CONFIGURATION = {"SchemaVersion": "1.0", "SageMaker": {"PythonSDK": {"Modules": {"TelemetryOptOut": True}}}}


def is_installed(version_of: Callable[[str], str] = version) -> bool:
    """Whether SDK 2 is installed; does not import it."""
    try:
        return version_of("sagemaker").startswith("2.")
    except PackageNotFoundError:
        return False


def missing() -> NotSetUp:
    """The error if the SDK is not installed."""
    return NotSetUp(
        "SageMaker's SDK 2 is not installed; run pip install -c constraints.txt -e '.[sagemaker]' in the checkout, or "
        "give --through boto3."
    )


def arguments(description: Description) -> dict[str, Any]:
    """The arguments of sagemaker.pytorch.PyTorch."""
    options = description.options
    given: dict[str, Any] = {
        "entry_point": SAGEMAKER_SCRIPT,
        "source_dir": description.source,
        "role": description.role,
        "image_uri": description.image,
        "instance_type": description.instance_type,
        "instance_count": options.nodes,
        "distribution": {options.distribution: _distribution(description)},
        "hyperparameters": dict(description.hyperparameters),
        "output_path": description.output,
        "max_run": description.resolved.max_run_s,
        "metric_definitions": [{"Name": name, "Regex": regex} for name, regex in description.metrics.items()],
        "tags": [{"Key": key, "Value": value} for key, value in description.tags.items()],
        # Both are on by default and use GPU time.
        "disable_profiler": not options.profiler,
        "debugger_hook_config": False,
        **_storage(description),
        **_network(options),
        **_debugging(options),
    }
    if description.environment:
        given["environment"] = dict(description.environment)
    if options.max_restarts:
        given["max_retry_attempts"] = options.max_restarts
    if description.resolved.max_wait_s is not None:
        given |= {"use_spot_instances": True, "max_wait": description.resolved.max_wait_s}
    if options.training_plan is not None:
        given["training_plan"] = options.training_plan
    if options.warm_pool_s:
        given["keep_alive_period_in_seconds"] = options.warm_pool_s
    return given


def _distribution(description: Description) -> dict[str, Any]:
    if description.options.distribution != "pytorchddp":
        return {"enabled": True}
    return {"enabled": True, "custom_mpi_options": description.mpi_options}


def _storage(description: Description) -> dict[str, Any]:
    storage = dict[str, Any]()
    if description.checkpoints is not None:
        storage |= {
            "checkpoint_s3_uri": description.checkpoints,
            "checkpoint_local_path": str(SAGEMAKER_CHECKPOINTS),
        }
    if description.resolved.disk_gb:
        storage["volume_size"] = description.resolved.disk_gb
    if description.options.kms_key is not None:
        storage["output_kms_key"] = description.options.kms_key
    if description.disk_key is not None:
        storage["volume_kms_key"] = description.disk_key
    return storage


def _network(options: SageMakerOptions) -> dict[str, Any]:
    network = dict[str, Any]()
    if options.subnet:
        network |= {
            "subnets": list(options.subnet),
            "security_group_ids": list(options.security_group),
        }
    if options.encrypt_traffic:
        network["encrypt_inter_container_traffic"] = True
    return network


def _debugging(options: SageMakerOptions) -> dict[str, Any]:
    looks = {"enable_remote_debug": options.remote_debug, "enable_infra_check": options.infra_check}
    return {name: True for name, is_on in looks.items() if is_on}


def send(description: Description, planned: Mapping[str, Any], aws: Aws) -> None:
    """Start the training job by the SDK.

    Raises AwsError and NoAnswer; NotSetUp without the SDK; SettingsError if the SDK rejects the job or would send a
    request other than `planned`.
    """
    client = aws.client("sagemaker")

    def compare(params: Mapping[str, Any], **_: Any) -> None:
        if not _is_planned(params, planned):
            raise SettingsError("SageMaker's SDK would send another request than planned; give --through boto3.")

    event = f"provide-client-params.sagemaker.{OPERATION}"
    client.meta.events.register(event, compare)
    try:
        with aws.in_words("sagemaker", OPERATION):
            _fit(description, aws.session, client)
    finally:
        client.meta.events.unregister(event, compare)


def _is_planned(made: Mapping[str, Any], planned: Mapping[str, Any]) -> bool:
    """Whether the SDK's request is the planned one; in a project of SageMaker Studio it adds the project's tags."""
    has_tags = all(tag in made["Tags"] for tag in planned["Tags"])
    return has_tags and {**made, "Tags": planned["Tags"]} == planned


def made(description: Description, boto_session: Any, client: Any) -> Any:
    """The sagemaker.pytorch.PyTorch of `description`.  Raises NotSetUp; ValueError if the SDK rejects it."""
    with importing():
        from sagemaker.pytorch import PyTorch
        from sagemaker.session import Session
    with quiet():
        session = Session(
            boto_session,
            sagemaker_client=client,
            default_bucket=description.folder.bucket,
            sagemaker_config=CONFIGURATION,
        )
        # A copy, as the SDK modifies its arguments.
        return PyTorch(**deepcopy(arguments(description)), sagemaker_session=session)


def _fit(description: Description, boto_session: Any, client: Any) -> None:
    """PyTorch(...).fit(wait=False)."""
    with importing():
        from sagemaker.estimator import EstimatorBase
    inputs = {channel.name: _input(channel, description.options.input_mode) for channel in description.channels}
    with quiet():
        try:
            pytorch = made(description, boto_session, client)
            # fit() without its telemetry decorator, which swallows Ctrl-C by a `return` in a `finally`.
            fit = EstimatorBase.fit.__wrapped__
            fit(
                pytorch,
                inputs or None,
                wait=False,
                job_name=description.name,
                experiment_config=_experiment(description),
            )
        except ValueError as error:
            words = " ".join(str(error).split()).rstrip(".")
            raise SettingsError(f"SageMaker's SDK refuses the job: {words}.") from error


def _experiment(description: Description) -> dict[str, str] | None:
    if description.options.experiment is None:
        return None
    return {"ExperimentName": description.options.experiment, "TrialComponentDisplayName": description.name}


def _input(channel: Channel, mode: str) -> Any:
    with importing():
        from sagemaker.inputs import FileSystemInput, TrainingInput
    if channel.kind == "s3":
        return TrainingInput(channel.place, input_mode=mode)
    return FileSystemInput(channel.place, FILE_SYSTEMS[channel.kind], channel.path, "ro")


@contextmanager
def importing() -> Iterator[None]:
    """Raises NotSetUp if the SDK is missing."""
    try:
        with quiet():
            yield
    except ModuleNotFoundError as error:
        raise missing() from error


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the SDK and undo its changes to tracebacks and loggers.

    Meanwhile its own clients do not query EC2's metadata service for credentials, which a laptop does not have.
    """
    hook, root, before = sys.excepthook, logging.getLogger(), logging.root.manager.disable
    handlers, level, metadata = list(root.handlers), root.level, os.environ.get(NO_METADATA)
    logging.disable(logging.CRITICAL)
    os.environ[NO_METADATA] = "true"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.excepthook, root.handlers[:] = hook, handlers
        root.setLevel(level)
        logging.disable(before)
        del os.environ[NO_METADATA]
        os.environ |= {} if metadata is None else {NO_METADATA: metadata}
