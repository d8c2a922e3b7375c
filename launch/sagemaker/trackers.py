"""The managed MLflow that a job's numbers go to.  Pure.

The trainer's own tracker logs to the MLflow, through AWS's plugin for its client: so any of the ways can ask for it.
CreateTrainingJob's MlflowConfig, which --mlflow-config adds, tells SageMaker itself of the server: AWS documents what
it is, and not its effect on a training of one's own.
"""

import re
from collections.abc import Mapping

from launch.core.training.base import Training
from launch.sagemaker.options import SageMakerOptions
from trainer.errors import SettingsError

SERVER = "MLFLOW_TRACKING_URI"  # as MLflow itself reads it

# https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_MlflowConfig.html, MlflowResourceArn
_ARN = re.compile(r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:\d{12}:mlflow-(tracking-server|app)/.+")


def check_trackers(train: Training, options: SageMakerOptions, environment: Mapping[str, str]) -> None:
    """Raises SettingsError for a server that cannot be one, or that nothing would be logged to."""
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
    """The variables that tell the trainer's MLflow of the server."""
    return {} if options.mlflow_server is None else {SERVER: options.mlflow_server}


def config_of(options: SageMakerOptions, train: Training, name: str) -> dict[str, str]:
    """The request's MlflowConfig for the training job called `name`; empty if it is not asked for.

    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_MlflowConfig.html
    """
    if not options.mlflow_config or options.mlflow_server is None or train.mlflow is None:
        return {}
    return {
        "MlflowResourceArn": options.mlflow_server,
        "MlflowExperimentName": train.mlflow,
        "MlflowRunName": name,
    }
