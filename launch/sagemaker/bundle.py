"""The source bundle of a job for /opt/ml/code, with requirements by hash."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from launch.aws.containers import Image, package_files, requirements, tracking
from launch.core.source.archive import Member, stored, tar
from launch.core.training.base import Training
from launch.sagemaker.options import SageMakerOptions
from trainer.contract import SAGEMAKER_PACKAGES, SAGEMAKER_SCRIPT, SAGEMAKER_SCRIPT_TEXT
from trainer.errors import SettingsError

REQUIREMENTS = "requirements.txt"


@dataclass(frozen=True)
class Bundle:
    """A source bundle."""

    content: bytes  # tar.gz
    digest: str  # SHA-256 of the tar in it
    names: tuple[str, ...]  # of its files


def make_bundle(lacking: str, packages: str = "") -> Bundle:
    """The bundle of a job.

    lacking: the text of requirements.txt, for AWS's toolkit to install; packages: of packages.txt, for the trainer
    to install.  If empty, the file is omitted.
    """
    members = dict(sorted({SAGEMAKER_SCRIPT: SAGEMAKER_SCRIPT_TEXT.encode(), **dict(package_files("trainer"))}.items()))
    if packages:
        members[SAGEMAKER_PACKAGES] = packages.encode()
    if lacking:
        members[REQUIREMENTS] = lacking.encode()
    plain = tar(Member(name, content) for name, content in members.items())
    return Bundle(stored(plain), hashlib.sha256(plain).hexdigest(), tuple(members))


SERVER_LOCK = "mlflow-server"  # with AWS's plugin; the lock tracker-NAME.txt has its packages


def requirements_of(options: SageMakerOptions, image: Image, train: Training) -> str:
    """The text of requirements.txt: the pinned packages that this training needs and `image` lacks, with hashes."""
    wanted = set(image.lacks)
    if train.data_url is not None:  # the toolkit's own image has it, and pip keeps that version
        wanted.add("obstore")
    if options.distribution == "pytorchddp" and not image.mpi4py:
        wanted.add("mpi4py")
    return requirements(wanted)


def named(options: SageMakerOptions, image: Image, train: Training) -> list[str]:
    """The packages that pip installs in `image`, and the trackers whose packages it installs."""
    lacking = re.findall(r"^([\w.-]+==\S+)", requirements_of(options, image, train), re.MULTILINE)
    return [*lacking, *(f"those of {name}" for name in _trackers(options, train))]


def _trackers(options: SageMakerOptions, train: Training) -> list[str]:
    return [*train.trackers] + [SERVER_LOCK] * (options.mlflow_server is not None)


def tracking_of(options: SageMakerOptions, train: Training) -> str:
    """As requirements_of(), for the trackers of this training with their dependencies; empty without trackers."""
    return tracking(_trackers(options, train))


SERVER = "MLFLOW_TRACKING_URI"  # the variable that MLflow reads

# https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_MlflowConfig.html, MlflowResourceArn
_ARN = re.compile(r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:\d{12}:mlflow-(tracking-server|app)/.+")


def check_trackers(train: Training, options: SageMakerOptions, environment: Mapping[str, str]) -> None:
    """Raise SettingsError for an invalid server, or if nothing would be logged to it."""
    if options.mlflow_server is None:
        if options.mlflow_config:
            raise SettingsError("--mlflow-config names --mlflow-server to SageMaker; give that, too, or leave it out.")
        return
    _check_server(train, options.mlflow_server, environment)


def _check_server(train: Training, server: str, environment: Mapping[str, str]) -> None:
    if not _ARN.fullmatch(server):
        raise SettingsError(
            f"--mlflow-server {server}: must look like "
            "arn:aws:sagemaker:us-east-1:111122223333:mlflow-tracking-server/NAME, or .../mlflow-app/NAME."
        )
    if train.mlflow is None:
        raise SettingsError("--mlflow-server is where --mlflow logs to; add --mlflow EXPERIMENT, or leave it out.")
    if SERVER in environment:
        raise SettingsError(f"--mlflow-server and --environment {SERVER}=... say the same; leave one of them out.")


def environment_of(options: SageMakerOptions) -> dict[str, str]:
    """The environment variables by which the trainer's MLflow finds the server."""
    return {} if options.mlflow_server is None else {SERVER: options.mlflow_server}


def config_of(options: SageMakerOptions, train: Training, name: str) -> dict[str, str]:
    """The request's MlflowConfig for the training job called `name`; empty without --mlflow-config.

    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_MlflowConfig.html
    """
    if not options.mlflow_config or options.mlflow_server is None or train.mlflow is None:
        return {}
    return {
        "MlflowResourceArn": options.mlflow_server,
        "MlflowExperimentName": train.mlflow,
        "MlflowRunName": name,
    }
