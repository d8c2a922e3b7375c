"""SageMaker's Python SDK: the only module that imports it, and the only one to change when its version 2 ends.

The SDK turns an estimator's arguments into a CreateTrainingJob request.  A plan shows that request, captured before
it is sent; the launch sends it, after checking that it is the planned one.
"""

import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from launch.core.aws import Aws
from launch.core.errors import NotSetUp
from launch.sagemaker.channels import FILE_SYSTEMS, Channel
from launch.sagemaker.estimator import Estimator
from trainer.errors import SettingsError

OPERATION = "CreateTrainingJob"
# Replaces the SDK's configuration: no telemetry, and no file of this machine changes a plan.
CONFIGURATION = {"SchemaVersion": "1.0", "SageMaker": {"PythonSDK": {"Modules": {"TelemetryOptOut": True}}}}


def capture(estimator: Estimator, region: str) -> dict[str, Any]:
    """The CreateTrainingJob request of `estimator` in `region`.  Nothing is sent, so it takes no credentials.

    Raises NotSetUp without the SDK, SettingsError if it refuses the arguments.
    """
    # A separate client, as the handlers below must not affect the launch's.  With credentials, as clients without any
    # search for them, also at EC2's metadata service.
    nobody = {"aws_access_key_id": "-", "aws_secret_access_key": "-"}  # nosec B105  # nothing is signed with these
    session = type(Aws(region).session)(**nobody, region_name=region)
    client, requests = session.client("sagemaker"), list[dict[str, Any]]()

    def keep(params: Mapping[str, Any], **_: Any) -> None:
        requests.append(deepcopy(dict(params)))

    def answer(**_: Any) -> tuple[Any, dict[str, Any]]:
        return _Answered(), {"TrainingJobArn": "-"}

    client.meta.events.register(f"provide-client-params.sagemaker.{OPERATION}", keep)
    client.meta.events.register(f"before-call.sagemaker.{OPERATION}", answer)
    with _no_metadata():
        _fit(estimator, session, client)
    (request,) = requests
    return request


@contextmanager
def _no_metadata() -> Iterator[None]:
    """Disables EC2's metadata service inside the block: the SDK makes clients of its own, also when imported."""
    name = "AWS_EC2_METADATA_DISABLED"
    before = os.environ.get(name)
    os.environ[name] = "true"
    try:
        yield
    finally:
        del os.environ[name]
        os.environ |= {} if before is None else {name: before}


class _Answered:
    """The part of an HTTP response that botocore reads."""

    status_code = 200


def send(estimator: Estimator, planned: Mapping[str, Any], aws: Aws) -> None:
    """Starts the training job, through the SDK.  Raises AwsError, NoAnswer; RuntimeError for an unplanned request."""
    client = aws.client("sagemaker")

    def compare(params: Mapping[str, Any], **_: Any) -> None:
        if params != planned:
            raise RuntimeError(f"SageMaker's SDK would send another request than planned: {params}")

    event = f"provide-client-params.sagemaker.{OPERATION}"
    client.meta.events.register(event, compare)
    try:
        with aws.in_words("sagemaker", OPERATION):
            _fit(estimator, aws.session, client)
    finally:
        client.meta.events.unregister(event, compare)


def _fit(estimator: Estimator, boto_session: Any, client: Any) -> None:
    """PyTorch(...).fit(wait=False)."""
    with _importing():
        from sagemaker.estimator import EstimatorBase
        from sagemaker.pytorch import PyTorch
        from sagemaker.session import Session
    inputs = {channel.name: _input(channel, estimator.input_mode) for channel in estimator.channels}
    with _quiet():
        session = Session(
            boto_session, sagemaker_client=client, default_bucket=estimator.bucket, sagemaker_config=CONFIGURATION
        )
        session.sagemaker_config = {}  # otherwise it is validated twenty times a job
        try:
            # The SDK changes its arguments.
            pytorch = PyTorch(**deepcopy(dict(estimator.arguments)), sagemaker_session=session)
            # fit() without its telemetry decorator, which swallows Ctrl-C with a `return` in a `finally`.
            EstimatorBase.fit.__wrapped__(pytorch, inputs or None, wait=False, job_name=estimator.name)
        except ValueError as error:
            words = " ".join(str(error).split()).rstrip(".")
            raise SettingsError(f"SageMaker's SDK refuses the job: {words}.") from error


def _input(channel: Channel, mode: str) -> Any:
    with _importing():
        from sagemaker.inputs import FileSystemInput, TrainingInput
    if channel.kind == "s3":
        return TrainingInput(channel.place, input_mode=mode)
    return FileSystemInput(channel.place, FILE_SYSTEMS[channel.kind], channel.path, "ro")


@contextmanager
def _importing() -> Iterator[None]:
    """Raises NotSetUp if the SDK is missing."""
    try:
        with _quiet():
            yield
    except ModuleNotFoundError as error:
        remedy = "run pip install -c constraints.txt -e '.[sagemaker]' in the checkout."
        raise NotSetUp(f"{error.name} is not installed; {remedy}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences the SDK (there is a version 3, no configuration was found) and undoes its changes to tracebacks and to
    the loggers of this process.
    """
    hook, root, before = sys.excepthook, logging.getLogger(), logging.root.manager.disable
    handlers, level = list(root.handlers), root.level
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.excepthook, root.handlers[:] = hook, handlers
        root.setLevel(level)
        logging.disable(before)
