"""Version 2 of SageMaker's Python SDK: its PyTorch estimator.  AWS supports it until 2027-07-06."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from launch.core.aws import Aws
from launch.core.steps import Request
from launch.sagemaker.channels import FILE_SYSTEMS, Channel
from launch.sagemaker.description import Description
from launch.sagemaker.ways import OPERATION, Arguments, Way
from launch.sagemaker.ways.sdks import (
    CONFIGURATION,
    at_work,
    check_planned,
    importing,
    kept,
    no_metadata,
    nobodys_session,
)
from trainer.errors import SettingsError

INSTALL = "-c constraints.txt -e '.[sagemaker]'"


def arguments(description: Description) -> dict[str, Any]:
    """The arguments of sagemaker.pytorch.PyTorch."""
    given: dict[str, Any] = {
        "entry_point": description.script,
        "source_dir": description.source,
        "role": description.role,
        "image_uri": description.image,
        "instance_type": description.instance_type,
        "instance_count": description.nodes,
        "distribution": {description.distribution: _distribution(description)},
        "hyperparameters": dict(description.hyperparameters),
        "output_path": description.output,
        "max_run": description.max_run_s,
        "metric_definitions": [{"Name": name, "Regex": regex} for name, regex in description.metrics.items()],
        "tags": [{"Key": key, "Value": value} for key, value in description.tags.items()],
        # Both are on by default and take part of the GPU's time.
        "disable_profiler": not description.profiler,
        "debugger_hook_config": False,
        **_storage(description),
        **_network(description),
        **_looks(description),
    }
    if description.environment:
        given["environment"] = dict(description.environment)
    if description.max_restarts:
        given["max_retry_attempts"] = description.max_restarts
    if description.max_wait_s is not None:
        given |= {"use_spot_instances": True, "max_wait": description.max_wait_s}
    if description.training_plan is not None:
        given["training_plan"] = description.training_plan
    if description.keep_s:
        given["keep_alive_period_in_seconds"] = description.keep_s
    return given


def _distribution(description: Description) -> dict[str, Any]:
    if description.distribution != "pytorchddp":
        return {"enabled": True}
    return {"enabled": True, "custom_mpi_options": description.mpi_options}


def _storage(description: Description) -> dict[str, Any]:
    storage = dict[str, Any]()
    if description.checkpoints is not None:
        storage |= {
            "checkpoint_s3_uri": description.checkpoints,
            "checkpoint_local_path": description.checkpoints_path,
        }
    if description.disk_gb:
        storage["volume_size"] = description.disk_gb
    if description.output_key is not None:
        storage["output_kms_key"] = description.output_key
    if description.disk_key is not None:
        storage["volume_kms_key"] = description.disk_key
    return storage


def _network(description: Description) -> dict[str, Any]:
    network = dict[str, Any]()
    if description.subnets:
        network |= {
            "subnets": list(description.subnets),
            "security_group_ids": list(description.security_groups),
        }
    if description.encrypt_traffic:
        network["encrypt_inter_container_traffic"] = True
    return network


def _looks(description: Description) -> dict[str, Any]:
    looks = {"enable_remote_debug": description.remote_debug, "enable_infra_check": description.infra_check}
    return {name: True for name, is_on in looks.items() if is_on}


def capture(description: Description) -> dict[str, Any]:
    """The CreateTrainingJob request that the estimator makes.  Nothing is sent, so it takes no credentials.

    Raises NotSetUp without the SDK, SettingsError if it refuses the arguments.
    """
    session, requests = nobodys_session(description.region), list[dict[str, Any]]()
    client = session.client("sagemaker")
    kept(client, requests)
    with no_metadata():
        _fit(description, session, client)
    (request,) = requests
    return request


def send(description: Description, planned: Mapping[str, Any], aws: Aws) -> None:
    """Starts the training job, through the SDK.  Raises AwsError, NoAnswer; RuntimeError for an unplanned request."""
    client = aws.client("sagemaker")

    def compare(params: Mapping[str, Any], **_: Any) -> None:
        check_planned(params, planned)

    event = f"provide-client-params.sagemaker.{OPERATION}"
    client.meta.events.register(event, compare)
    try:
        with aws.in_words("sagemaker", OPERATION):
            _fit(description, aws.session, client)
    finally:
        client.meta.events.unregister(event, compare)


def made(description: Description, boto_session: Any, client: Any) -> Any:
    """The sagemaker.pytorch.PyTorch of `description`.  Raises NotSetUp; ValueError if the SDK refuses it."""
    with importing(INSTALL):
        from sagemaker.pytorch import PyTorch
        from sagemaker.session import Session
    with at_work():
        session = Session(
            boto_session,
            sagemaker_client=client,
            default_bucket=description.folder.bucket,
            sagemaker_config=CONFIGURATION,
        )
        # The SDK changes its arguments.
        return PyTorch(**deepcopy(arguments(description)), sagemaker_session=session)


def _fit(description: Description, boto_session: Any, client: Any) -> None:
    """PyTorch(...).fit(wait=False)."""
    with importing(INSTALL):
        from sagemaker.estimator import EstimatorBase
    inputs = {channel.name: _input(channel, description.input_mode) for channel in description.channels}
    with at_work():
        try:
            pytorch = made(description, boto_session, client)
            # fit() without its telemetry decorator, which swallows Ctrl-C with a `return` in a `finally`.
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
    if description.experiment is None:
        return None
    return {"ExperimentName": description.experiment, "TrialComponentDisplayName": description.name}


def _input(channel: Channel, mode: str) -> Any:
    with importing(INSTALL):
        from sagemaker.inputs import FileSystemInput, TrainingInput
    if channel.kind == "s3":
        return TrainingInput(channel.place, input_mode=mode)
    return FileSystemInput(channel.place, FILE_SYSTEMS[channel.kind], channel.path, "ro")


def _requests(description: Description) -> tuple[Request, ...]:
    why = "start the job, through the SDK's estimator"
    return (Request("sagemaker", OPERATION, capture(description), why),)


def _shown(description: Description) -> Arguments:
    heading = "the estimator, sagemaker.pytorch.PyTorch, which makes the last request:"
    return ((heading, arguments(description)),)


WAY = Way("estimator", _requests, send, _shown)
