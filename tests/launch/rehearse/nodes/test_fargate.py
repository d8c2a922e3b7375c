"""Containers of a rehearsed queue are processes: their signals, environment, log and end."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launch.aws.client import Aws
from launch.aws.names import CONTROLLER, CONTROLLER_LOGS
from launch.rehearse.aws.batch.container_operations import make_fargate_queue
from launch.rehearse.aws.batch.containers import ContainerJob
from launch.rehearse.aws.batch.scheduler import step, terminate
from launch.rehearse.nodes.fargate import KEY, Fargate
from tests.launch.ec2.account import Account
from tests.launch.rehearse.aws.test_fargate import ask


class Stage:
    """A queue whose jobs are processes."""

    def __init__(self, account: Account, fargate: Fargate) -> None:
        self.account, self.fargate = account, fargate

    def submit(self, script: str) -> ContainerJob:
        answer = ask("SubmitJob", jobName="job", jobQueue="aws-ddp-toolkit-demo-ec2", jobDefinition=CONTROLLER,
                     shareIdentifier="default", containerOverrides={"command": ["sh", "-c", script]})  # fmt: skip
        job: ContainerJob = self.account.rules.batch.jobs[answer["jobId"]]
        return job

    def until(self, is_so: Callable[[], bool]) -> None:
        give_up = time.monotonic() + 20
        while not is_so() and time.monotonic() < give_up:
            time.sleep(0.02)
            step(self.account.rules)
        assert is_so()

    def log(self, stream: str) -> list[str]:
        asked = {"logGroupName": CONTROLLER_LOGS, "logStreamNames": [stream]}
        events = Aws("us-east-1").call("logs", "FilterLogEvents", asked)
        return [event["message"] for event in events["events"]]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Account.opened() as account:
        make_fargate_queue(account.rules, "demo", "us-east-1", account.id, {})
        fargate = Fargate(account.rules, "http://127.0.0.1:9", tmp_path)
        account.rules.batch.start, account.rules.batch.kill_after_s = fargate.start, 0.3
        yield Stage(account, fargate)
        fargate.close()
        assert [task for task in fargate.tasks if task.exit_code is None] == []


def test_an_attempt_that_leaves_with_75_has_a_successor_with_its_number_and_the_jobs_role(stage: Stage) -> None:
    job = stage.submit('echo "$AWS_BATCH_JOB_ATTEMPT $AWS_ACCESS_KEY_ID"; [ $AWS_BATCH_JOB_ATTEMPT = 2 ] || exit 75')
    stage.until(lambda: job.status == "SUCCEEDED")

    assert [attempt.exit_code for attempt in job.attempts] == [75, 0]
    stage.until(lambda: stage.log(job.attempts[1].stream) == [f"2 {KEY}"])
    assert stage.log(job.attempts[0].stream) == [f"1 {KEY}"]


def test_a_container_that_ignores_sigterm_gets_sigkill(stage: Stage) -> None:
    job = stage.submit("trap 'echo asked' TERM; echo begun; while :; do sleep 0.05; done")
    stage.until(lambda: job.status == "RUNNING" and stage.log(job.attempts[0].stream) == ["begun"])
    terminate(job, "stopped", stage.account.rules)
    stage.until(lambda: job.status == "FAILED")

    assert job.attempts[0].exit_code == 128 + signal.SIGKILL
    stage.until(lambda: stage.log(job.attempts[0].stream) == ["begun", "asked"])


def test_a_killed_container_is_tried_again(stage: Stage) -> None:
    job = stage.submit("[ $AWS_BATCH_JOB_ATTEMPT = 2 ] || exec sleep 60")
    stage.until(lambda: job.status == "RUNNING")
    assert stage.fargate.kill()
    stage.until(lambda: job.status == "SUCCEEDED")

    assert [attempt.exit_code for attempt in job.attempts] == [137, 0]


def test_the_command_of_a_python_module_runs_from_this_checkout(stage: Stage) -> None:
    job = stage.submit("true")
    stage.until(lambda: job.status == "SUCCEEDED")
    request = dict(job.request) | {"containerOverrides": {"command": ["python", "-m", "launch", "--help"]}}
    again = ContainerJob("x", job.arn, job.queue, request, job.created, definition=job.definition)
    task = stage.fargate.start(again, "task", "controller/default/task")
    stage.until(lambda: task.exit_code == 0)
    stage.until(lambda: len(stage.log("controller/default/task")) > 5)
