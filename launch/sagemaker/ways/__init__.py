"""The ways from a description to CreateTrainingJob: SageMaker's SDK 2, its SDK 3, or boto3 alone.

Each is a module with a WAY, and imports its library when it is used.  A plan shows the requests that a way makes; the
launch sends them, after checking that they are the planned ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from launch.core.aws import Aws
from launch.core.steps import Request
from launch.sagemaker.description import Description

OPERATION = "CreateTrainingJob"

Name = Literal["estimator", "model-trainer", "boto3"]
_MODULES: Mapping[Name, str] = {"estimator": "estimator", "model-trainer": "model_trainer", "boto3": "plain"}

# Headings, and what a library is given below them.
Arguments = tuple[tuple[str, Mapping[str, Any]], ...]


@dataclass(frozen=True)
class Way:
    """requests: for a description, in order and CreateTrainingJob last, which nothing of is sent; it takes no
    credentials, and raises NotSetUp without the library and SettingsError if that refuses.

    send: starts the training job, given the planned request.  Raises AwsError, NoAnswer; RuntimeError if the library
    would send another.  arguments: of the library, for the plan.
    """

    name: Name
    requests: Callable[[Description], tuple[Request, ...]]
    send: Callable[[Description, Mapping[str, Any], Aws], None]
    arguments: Callable[[Description], Arguments]


def load(name: Name) -> Way:
    """The way called `name`."""
    way = import_module(f"{__name__}.{_MODULES[name]}").WAY
    assert isinstance(way, Way)
    return way


def default(version_of: Callable[[str], str] = version) -> Name:
    """The estimator where SDK 2 is installed, which is not imported for that; else boto3, which is always there."""
    try:
        return "estimator" if version_of("sagemaker").startswith("2.") else "boto3"
    except PackageNotFoundError:
        return "boto3"
