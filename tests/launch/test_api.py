"""The backends from Python, as a notebook or another program uses them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launch import api
from launch.core.errors import AwsError
from tests.launch.ec2.account import Account
from tests.launch.ec2.terminal import Terminal
from tests.launch.sagemaker.world import Stage
from trainer.errors import SettingsError

JOB = {"dataset": "digits", "model": "cnn", "max_hours": 1}


@pytest.fixture(params=["ec2", "sagemaker"])
def backend(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[tuple[api.Client, Callable[[], list[Any]]]]:
    """A client, and the machines or training jobs that run."""
    monkeypatch.chdir(tmp_path)
    if request.param == "ec2":
        from launch.ec2 import __main__ as ec2

        with Account.opened() as account:
            made = ec2.launcher(Terminal(account).runtime)
            monkeypatch.setattr(ec2, "launcher", lambda: made)
            yield api.ec2, lambda: list(account.nodes)
    else:
        from launch.sagemaker import __main__ as sagemaker

        with Stage.opened() as stage:
            made_too = sagemaker.launcher(stage.runtime)
            monkeypatch.setattr(sagemaker, "launcher", lambda: made_too)
            running = ("InProgress", "Stopping")
            yield api.sagemaker, lambda: [job for job in stage.account.jobs.values() if job.status in running]


def test_a_job_is_planned_started_watched_and_stopped(
    backend: tuple[api.Client, Callable[[], list[Any]]],
) -> None:
    client, running = backend

    plan = client.plan(**JOB, nodes=2)
    assert "at most" in plan.brief
    assert "RunInstances" in str(plan) or "CreateTrainingJob" in str(plan)
    assert running() == []

    job = client.start(plan)
    assert running()
    assert client.status(job).job == job
    assert client.status(job).status in ("running", "waiting")
    assert [one.job for one in client.jobs()] == [job]
    assert client.logs(job) == []

    client.stop(job)
    assert running() == []
    client.stop(job)  # again, which is harmless


def test_the_users_defaults_and_published_data_count_as_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "aws-ddp-toolkit").mkdir()
    (tmp_path / "aws-ddp-toolkit/config.yaml").write_text("max_hours: 2\ntensorboard: true\n")
    plan = api.ec2.plan(data="photos", nodes=2, region="us-east-1")
    assert {"imagefolder", "--tensorboard"} <= set(str(plan).split())
    assert "time limit     2 h" in str(plan)


def test_a_job_of_this_machine_has_a_plan_and_no_verbs() -> None:
    assert "--nproc-per-node 2" in str(api.local.plan(dataset="digits", model="cnn", nproc_per_node=2))
    with pytest.raises(SettingsError, match="no status"):
        api.local.status("one")


def test_what_cannot_work_is_an_error_in_one_sentence(
    backend: tuple[api.Client, Callable[[], list[Any]]],
) -> None:
    client, running = backend
    with pytest.raises(SettingsError, match="did you mean 'epochs'"):
        client.plan(epoch=3)
    with pytest.raises((SettingsError, AwsError), match="nothing-of-the-kind"):
        client.status("nothing-of-the-kind")
    assert running() == []
