"""Jobs in EC2's queue, and the commands beside their launchers."""

from collections.abc import Callable

import pytest

from launch.aws.instances.inventory import Fleet
from launch.aws.names import Folder
from launch.core.errors import AwsError
from launch.ec2.__main__ import main
from launch.ec2.batch import put_into_queue
from launch.ec2.controller import lead
from launch.ec2.queue import find_queued, is_of
from launch.ec2.queue_verbs import follow_queued
from launch.ec2.regions import plan_regions
from launch.ec2.stop import Target, stop_job
from launch.rehearse.accounts import vcpus
from launch.rehearse.aws.batch.container_operations import make_fargate_queue
from launch.rehearse.aws.batch.scheduler import step
from tests.launch.ec2.known import NAME
from tests.launch.ec2.known import job as job_called
from tests.launch.ec2.world import Stage

Put = Callable[..., None]


@pytest.fixture
def put(stage: Stage) -> Put:
    """Puts a job into queue demo."""
    account = stage.account
    make_fargate_queue(account.rules, "demo", account.region, account.id, vcpus(account))

    def put(**where: object) -> None:
        put_into_queue(plan_regions(job_called(queue="demo", **where), stage.runtime()), stage.runtime())

    return put


def stop(stage: Stage, job: str) -> int:
    runtime, account = stage.runtime(), stage.account
    aws = runtime.make_aws(account.region)
    stage.events = iter([lambda: step(account.rules)] * 100)
    return stop_job(Target(aws, job, Fleet(), account.bucket), runtime.clock, runtime.say)


def test_a_job_that_is_stopped_in_line_ends_as_stopped_whatever_an_earlier_start_did(stage: Stage, put: Put) -> None:
    stage.account.put_json(f"jobs/{NAME}/outcome.json", {"state": "done", "exit_code": 0})
    put()

    assert stop(stage, NAME) == 0

    outcome = stage.outcome
    assert outcome is not None
    assert outcome.state == "stopped"
    code = lead(Folder(stage.account.bucket, NAME), stage.account.region, stage.runtime())
    assert code != 75
    assert not stage.account.ec2.all_instances()


def test_names_that_differ_in_case_only_are_two_jobs(stage: Stage, put: Put) -> None:
    put(job_name="exp")
    put(job_name="Exp")

    stop(stage, "exp")

    aws = stage.runtime().make_aws(stage.account.region)
    states = {name: found.is_over for name in ("exp", "Exp") if (found := find_queued(aws, name))}
    assert states == {"exp": True, "Exp": False}


def test_a_job_that_needs_more_vcpus_than_the_queue_has_is_refused(stage: Stage) -> None:
    account = stage.account
    make_fargate_queue(account.rules, "demo", account.region, account.id, {"graphics": 8})
    problem = plan_regions(job_called(queue="demo"), stage.runtime()).problem
    assert isinstance(problem, AwsError)
    assert "python -m launch.infra up --queue demo" in str(problem)


@pytest.mark.parametrize(("spec", "earlier"), [({"started": 5}, 0), ({"started": 5, "ended": 6}, 5)])
def test_a_start_that_runs_is_the_queued_one_and_one_that_has_ended_is_not(
    spec: dict[str, int], earlier: int, stage: Stage, put: Put
) -> None:
    """So that a launcher whose turn comes after a laptop's own run does not pay for it twice."""
    put()
    folder = Folder(stage.account.bucket, NAME)
    first = dict(stage.account.s3(folder.queued) or {})
    (launcher,) = stage.account.rules.batch.jobs.values()
    launcher.attempts[-1].task.exit_code = 0
    step(stage.account.rules)
    stage.account.put_json(folder.spec, {**first, **spec})
    put()
    content = dict(stage.account.s3(folder.queued) or {})
    assert content["earlier"] == earlier
    assert is_of({**first, **spec}, content) is (earlier == 0)


def test_attach_returns_how_a_queued_job_ended(stage: Stage, put: Put) -> None:
    put()
    account = stage.account
    (batch_job,) = account.rules.batch.jobs.values()

    def end() -> None:
        account.put_json(f"jobs/{NAME}/job.json", {**content, "ended": 1})
        account.put_json(f"jobs/{NAME}/outcome.json", {"state": "done", "exit_code": 0})
        batch_job.attempts[-1].task.exit_code = 0
        step(account.rules)

    folder = Folder(account.bucket, NAME)
    content = dict(account.s3(folder.queued) or {})
    stage.events = iter([lambda: None, end])
    runtime = stage.runtime()
    follow_queued(runtime.make_aws(account.region), folder, runtime, fetch=False)
    assert any("queue demo" in text for text in stage.said)


@pytest.mark.parametrize("words", ["--queue Bad!", "--priority 3", "--share a"])
def test_wrong_flags_of_a_queue_are_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words.split(), "--dry-run"]) == 2
    assert capsys.readouterr().err.startswith(f"error: {words.split()[0]}")
