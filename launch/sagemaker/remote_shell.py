"""A shell in the container of a running job, through AWS Systems Manager.  Pure.

https://docs.aws.amazon.com/sagemaker/latest/dg/train-remote-debugging.html
"""

from collections.abc import Iterator

from launch.sagemaker.names import command
from launch.sagemaker.training_job import TrainingJob
from trainer.errors import SettingsError

PLUGIN = "https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-install-plugin.html"


def shell_of(training_job: TrainingJob, node: int) -> Iterator[str]:
    """The lines to paste for a shell on algo-`node`.  Raises SettingsError if there can be none."""
    job, region = training_job.job, training_job.region
    if training_job.is_over:
        raise SettingsError(f"job {job} has ended; for its logs run {command('logs', job, region)}")
    if not training_job.has_shell:
        # While it is Downloading or Training:
        # https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_UpdateTrainingJob.html, RemoteDebugConfig
        raise SettingsError(
            f"job {job} was started without --remote-debug; turn it on while it trains:\n  aws sagemaker "
            f"update-training-job --training-job-name {training_job.name} --remote-debug-config EnableRemoteDebug=true "
            f"--region {region}"
        )
    if node > training_job.nodes:
        raise SettingsError(f"--node {node}: {job} has {training_job.nodes}, numbered from 1.")
    yield f"# needs AWS's Session Manager plugin: {PLUGIN}"
    target = f"sagemaker-training-job:{training_job.name}_algo-{node}"
    yield f"aws ssm start-session --target {target} --region {region}"
