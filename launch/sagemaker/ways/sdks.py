"""What both versions of SageMaker's SDK take to be asked for a request: they import much, call home and are loud."""

import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any

from launch.core.aws import Aws
from launch.core.errors import NotSetUp
from launch.sagemaker.ways import OPERATION
from trainer.process.own_folder import is_anothers

# Replaces the SDK's configuration: no telemetry, and no file of this machine changes a plan.
CONFIGURATION = {"SchemaVersion": "1.0", "SageMaker": {"PythonSDK": {"Modules": {"TelemetryOptOut": True}}}}


def nobodys_session(region: str) -> Any:
    """A boto3 session of its own, as handlers on it must not affect the launch's.

    With credentials, as clients without any search for them, also at EC2's metadata service.
    """
    nobody = {"aws_access_key_id": "-", "aws_secret_access_key": "-"}  # nosec B105  # nothing is signed with these
    return type(Aws(region).session)(**nobody, region_name=region)


class Answered:
    """The part of an HTTP response that botocore reads."""

    status_code = 200


def kept(client: Any, requests: list[dict[str, Any]]) -> None:
    """Lets `client` put its CreateTrainingJob requests into `requests` instead of sending them."""

    def keep(params: Mapping[str, Any], **_: Any) -> None:
        requests.append(deepcopy(dict(params)))

    def answer(**_: Any) -> tuple[Any, dict[str, Any]]:
        return Answered(), {"TrainingJobArn": "-"}

    client.meta.events.register(f"provide-client-params.sagemaker.{OPERATION}", keep)
    client.meta.events.register(f"before-call.sagemaker.{OPERATION}", answer)


def check_planned(made: Mapping[str, Any], planned: Mapping[str, Any]) -> None:
    """Raises RuntimeError if the SDK would send another request than `planned`."""
    if made != planned:
        raise RuntimeError(f"SageMaker's SDK would send another request than planned: {made}")


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Sets variables of this process inside the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ |= values
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            os.environ |= {} if value is None else {name: value}


def no_metadata() -> Any:
    """Disables EC2's metadata service inside the block: the SDK makes clients of its own, also when imported."""
    return environment(AWS_EC2_METADATA_DISABLED="true")


@contextmanager
def importing(install: str) -> Iterator[None]:
    """Raises NotSetUp if the SDK is missing.  install: pip's words for it."""
    try:
        with quiet():
            yield
    except ModuleNotFoundError as error:
        remedy = f"run pip install {install} in the checkout, or give --through boto3."
        raise NotSetUp(f"{error.name} is not installed; {remedy}") from error


@contextmanager
def at_work() -> Iterator[None]:
    """Around what the SDK does: it says nothing, and checks its configuration once, and not 22 times a job."""
    with quiet(), _checked_once(), _without_strangers_project():
        yield


# Configurations that have passed, each with what it was checked against.
_passed = list[tuple[Any, Any]]()


@contextmanager
def _checked_once() -> Iterator[None]:
    """A check takes a tenth of a second to a second, which jsonschema spends on the SDK's schema and not on us."""
    jsonschema: Any = import_module("jsonschema")  # which both SDKs require
    check = jsonschema.validate

    def check_once(instance: Any, schema: Any, *args: Any, **named: Any) -> None:
        if not any(schema is passed_by and instance == passed for passed, passed_by in _passed):
            check(instance, schema, *args, **named)
            _passed.append((deepcopy(instance), schema))

    jsonschema.validate = check_once
    try:
        yield
    finally:
        jsonschema.validate = check


@contextmanager
def _without_strangers_project() -> Iterator[None]:
    """Has the SDK take no tags from a project's file that another user left in this folder or in one above.

    It looks for one up to the root, as SageMaker Studio leaves one in a project of its own, and waits for a pipe.
    """
    studio: Any = next(filter(None, map(sys.modules.get, ("sagemaker._studio", "sagemaker.core._studio"))), None)
    if studio is None:
        yield
        return
    find = studio._find_config

    def find_own(*args: Any, **named: Any) -> Path | None:
        found: Path | None = find(*args, **named)
        return None if found is None or is_anothers(found) else found

    studio._find_config = find_own
    try:
        yield
    finally:
        studio._find_config = find


@contextmanager
def quiet() -> Iterator[None]:
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
