"""Where the lines that a container prints go: CloudWatch, and the job's metrics."""

import re
import time
from collections.abc import Callable
from contextlib import suppress

from launch.rehearse.aws.sagemaker.account import SageMakerAccount
from launch.rehearse.aws.sagemaker.changes import measured
from launch.rehearse.aws.sagemaker.jobs import TrainingJob


def line_handler(account: SageMakerAccount, job: TrainingJob, number: int) -> Callable[[str], None]:
    """A function that puts lines of container `number`, from 1, into CloudWatch, and its metrics into the job."""
    host = f"algo-{number}"
    stream = f"{job.name}/{host}-{int(time.time() * 1000)}"
    metrics = [
        (row["Name"], re.compile(row["Regex"]))
        for row in job.request["AlgorithmSpecification"].get("MetricDefinitions", [])
    ]

    def on_line(line: str) -> None:
        account.log(job.name, host, [line or " "], stream)  # CloudWatch takes no empty ones
        for metric, regex in metrics:
            if match := regex.search(line):
                with suppress(ValueError, IndexError):  # not a number, no group
                    measured(job, metric, float(match[1]))

    return on_line
