"""The managed MLflow server to which a job logs.  Pure.

The trainer's tracker logs to it by AWS's plugin for the MLflow client, with the SDK and with boto3.
--mlflow-config also sets CreateTrainingJob's MlflowConfig; AWS documents the field, but not its effect on custom
trainings.
"""

import re
from collections.abc import Mapping

from launch.core.training.base import Training
from launch.sagemaker.options import SageMakerOptions
from trainer.errors import SettingsError

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
