"""The managed MLflow that a job's numbers go to.  Pure.

The trainer's own tracker logs to the MLflow, through AWS's plugin for its client: so any of the ways can ask for it.
CreateTrainingJob's MlflowConfig would do for serverless jobs, which run AWS's own training.
"""

import re
from collections.abc import Mapping

from launch.sagemaker.options import SageMakerOptions
from trainer.config import TrainConfig
from trainer.errors import SettingsError

SERVER = "MLFLOW_TRACKING_URI"  # as MLflow itself reads it

# https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_MlflowConfig.html, MlflowResourceArn
_ARN = re.compile(r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:\d{12}:mlflow-(tracking-server|app)/.+")


def check_trackers(train: TrainConfig, options: SageMakerOptions, environment: Mapping[str, str]) -> None:
    """Raises SettingsError for a server that cannot be one, or that nothing would be logged to."""
    if options.mlflow_server is None:
        return
    if not _ARN.fullmatch(options.mlflow_server):
        raise SettingsError(
            f"--mlflow-server {options.mlflow_server}: must look like "
            "arn:aws:sagemaker:us-east-1:111122223333:mlflow-tracking-server/NAME, or .../mlflow-app/NAME."
        )
    if train.mlflow is None:
        raise SettingsError("--mlflow-server is where --mlflow logs to; add --mlflow EXPERIMENT, or leave it out.")
    if SERVER in environment:
        raise SettingsError(f"--mlflow-server and --environment {SERVER}=... say the same; leave one of them out.")


def environment_of(options: SageMakerOptions) -> dict[str, str]:
    """What tells the trainer's MLflow of the server."""
    return {} if options.mlflow_server is None else {SERVER: options.mlflow_server}
