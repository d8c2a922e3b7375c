"""SageMaker's Python SDK: the only module that imports it, and the only one to change when its version 2 ends.

The SDK turns an estimator's arguments into a CreateTrainingJob request.  A plan shows that request, captured before
it is sent; the launch sends it, and makes sure that it is the one that was planned.
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
# Given as the whole of the SDK's configuration: neither does it call home, nor do files of this machine change a plan.
CONFIGURATION = {"SchemaVersion": "1.0", "SageMaker": {"PythonSDK": {"Modules": {"TelemetryOptOut": True}}}}


def capture(estimator: Estimator, region: str) -> dict[str, Any]:
    """The CreateTrainingJob request of `estimator` in `region`.  Nothing is sent, so it takes no credentials.

    Raises NotSetUp without the SDK, SettingsError where it refuses the arguments.
    """
    # A client of its own: what is done to it below must not happen to the launch's.  And credentials of its own, for
    # every client looks for some, on a laptop also where EC2 would have them.
    nobody = {"aws_access_key_id": "-", "aws_secret_access_key": "-"}  # nosec B105  # nothing is signed for anybody
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
    """Meanwhile nobody asks EC2's metadata for credentials: the SDK makes clients of its own, also when imported."""
    name = "AWS_EC2_METADATA_DISABLED"
    before = os.environ.get(name)
    os.environ[name] = "true"
    try:
        yield
    finally:
        del os.environ[name]
        os.environ |= {} if before is None else {name: before}


class _Answered:
    """What botocore wants of an answer that never came over a network."""

    status_code = 200


def send(estimator: Estimator, planned: Mapping[str, Any], aws: Aws) -> None:
    """Starts the training job, through the SDK.  Raises AwsError, NoAnswer; a bug if the SDK made another request."""
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
    bucket = estimator.arguments["output_path"].removeprefix("s3://").partition("/")[0]
    inputs = {channel.name: _input(channel, estimator.input_mode) for channel in estimator.channels}
    with _quiet():
        session = Session(boto_session, sagemaker_client=client, default_bucket=bucket, sagemaker_config=CONFIGURATION)
        session.sagemaker_config = {}  # there is nothing in it, and each of twenty looks would validate it anew
        try:
            # The SDK writes into what it is given.
            made = PyTorch(**deepcopy(dict(estimator.arguments)), sagemaker_session=session)
            # fit() without what calls home, whose `return` in a `finally` would swallow a Ctrl-C.
            EstimatorBase.fit.__wrapped__(made, inputs or None, wait=False, job_name=estimator.name)
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
    """Meanwhile the SDK may be missing."""
    try:
        with _quiet():
            yield
    except ModuleNotFoundError as error:
        remedy = "run pip install -c constraints.txt -e '.[sagemaker]' in the checkout."
        raise NotSetUp(f"{error.name} is not installed; {remedy}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the SDK says (that there is a version 3, that it found no configuration), nor what it changes: how
    tracebacks look, and what all loggers of this process show.
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
