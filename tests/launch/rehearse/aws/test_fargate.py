"""The embedded AWS Batch runs container jobs on Fargate as AWS's pages have it: a small request for each."""

import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from launch.aws.client import Aws
from launch.core.errors import AwsError
from launch.rehearse.aws.batch.container_operations import controller, make_fargate_queue
from launch.rehearse.aws.batch.containers import ContainerJob
from launch.rehearse.aws.batch.scheduler import HeldTask, lose, step
from tests.conftest import ROOT
from tests.launch.ec2.account import Account

QUEUE, DEFINITION = "aws-ddp-toolkit-demo-ec2", "aws-ddp-toolkit-controller"
RESOURCE = "aws-ddp-toolkit-demo-graphics"


@pytest.fixture
def account() -> Iterator[Account]:
    with Account.opened() as opened:
        make_fargate_queue(opened.rules, "demo", "us-east-1", opened.id, {"graphics": 32})
        opened.rules.at = 1_800_000_000.0
        opened.rules.now = lambda: opened.rules.at
        yield opened


def ask(operation: str, **params: Any) -> dict[str, Any]:
    return Aws("us-east-1").call("batch", operation, params)


def submit(account: Account, name: str = "job", vcpus: int = 8, **more: Any) -> ContainerJob:
    consumes = {"consumableResourceList": [{"consumableResource": RESOURCE, "quantity": vcpus}]}
    asked = {"jobName": name, "jobQueue": QUEUE, "jobDefinition": DEFINITION, "shareIdentifier": "default",
             "consumableResourcePropertiesOverride": consumes, **more}  # fmt: skip
    answer = ask("SubmitJob", **asked)
    step(account.rules)
    found: ContainerJob = account.rules.batch.jobs[answer["jobId"]]
    return found


def end(account: Account, job: ContainerJob, code: int) -> None:
    """Its container ends with this code."""
    task = job.attempts[-1].task
    assert isinstance(task, HeldTask)
    task.exit_code = code
    step(account.rules)


def described(job: ContainerJob) -> dict[str, Any]:
    (found,) = ask("DescribeJobs", jobs=[job.id])["jobs"]
    return dict(found)


def test_a_job_goes_from_submitted_to_succeeded(account: Account) -> None:
    job = submit(account, containerOverrides={"command": ["python", "-m", "launch.ec2.controller", "job"]})
    assert described(job)["status"] == "RUNNING"
    assert described(job)["container"]["command"][-1] == "job"
    assert described(job)["container"]["logStreamName"].startswith("controller/default/")
    assert account.left() == ["job in a queue job"]
    end(account, job, 0)

    shown = described(job)
    assert (shown["status"], shown["container"]["exitCode"]) == ("SUCCEEDED", 0)
    assert [one["container"]["exitCode"] for one in shown["attempts"]] == [0]
    assert account.left() == []


@pytest.mark.parametrize(
    ("code", "status"), [(75, "STARTING"), (137, "STARTING"), (1, "STARTING"), (2, "FAILED"), (5, "FAILED")]
)
def test_the_exit_code_decides_whether_a_job_is_tried_again(account: Account, code: int, status: str) -> None:
    """https://docs.aws.amazon.com/batch/latest/userguide/job_retries.html"""
    job = submit(account)
    end(account, job, code)
    assert job.status == status


def test_a_lost_machine_is_another_attempt_and_ten_are_the_most(account: Account) -> None:
    job = submit(account)
    lose(job)
    step(account.rules)
    assert (len(job.attempts), job.attempts[0].exit_code) == (2, None)
    for _ in range(9):
        end(account, job, 75)
    assert (job.status, len(job.attempts)) == ("FAILED", 10)


def test_without_a_rule_that_matches_a_job_is_tried_again(account: Account) -> None:
    rules = [{"onExitCode": "2", "action": "EXIT"}]
    job = submit(account, retryStrategy={"attempts": 2, "evaluateOnExit": rules})
    end(account, job, 1)
    assert len(job.attempts) == 2


def test_terminating_a_running_job_sends_sigterm_and_sigkill_after_30_s(account: Account) -> None:
    """https://docs.aws.amazon.com/batch/latest/userguide/job_timeouts.html"""
    job = submit(account)
    ask("TerminateJob", jobId=job.id, reason="stopped")
    task = job.attempts[-1].task
    assert isinstance(task, HeldTask)
    account.rules.at += 29
    assert described(job)["status"] == "RUNNING"
    assert task.signals == [signal.SIGTERM]
    account.rules.at += 2

    shown = described(job)
    assert task.signals == [signal.SIGTERM, signal.SIGKILL]
    assert (shown["status"], shown["statusReason"], shown["isTerminated"]) == ("FAILED", "stopped", True)


def test_a_job_that_exits_75_after_it_was_terminated_is_not_tried_again(account: Account) -> None:
    job = submit(account)
    ask("TerminateJob", jobId=job.id, reason="stopped")
    end(account, job, 75)
    assert (job.status, len(job.attempts)) == ("FAILED", 1)


def test_jobs_over_a_consumable_resource_are_never_above_its_limit(account: Account) -> None:
    """Twelve jobs over four machines of 8 vCPUs; every third is interrupted once, and keeps its place."""
    jobs = [submit(account, f"job-{number}") for number in range(12)]
    rounds = 0
    while running := [job for job in jobs if job.status in ("STARTING", "RUNNING")]:
        shown = ask("DescribeConsumableResource", consumableResource=RESOURCE)
        assert (shown["inUseQuantity"], shown["availableQuantity"]) == (8 * len(running), 32 - 8 * len(running))
        assert len(running) <= 4
        rounds += 1
        for job in running:
            end(account, job, 75 if jobs.index(job) % 3 == 0 and job.used == 1 else 0)
    assert {job.status for job in jobs} == {"SUCCEEDED"}
    assert rounds == 4  # 16 attempts


def test_a_job_between_two_attempts_keeps_its_resources(account: Account) -> None:
    """They are unlocked when it succeeds or fails, as resource-aware-scheduling-how-to-for-jobs has it."""
    running, waiting = submit(account, vcpus=32), submit(account, "waiting")
    end(account, running, 75)
    assert (running.status, waiting.status) == ("STARTING", "RUNNABLE")


def test_shares_and_priorities_order_the_line(account: Account) -> None:
    running = submit(account, vcpus=32)
    for name, share, priority in (("a", "default", 0), ("b", "default", 9), ("c", "other", 0)):
        submit(account, name, 32, shareIdentifier=share, schedulingPriorityOverride=priority)
    front = ask("GetJobQueueSnapshot", jobQueue=QUEUE)["frontOfQueue"]["jobs"]
    names = [account.rules.batch.jobs[row["jobArn"].rpartition("/")[2]].request["jobName"] for row in front]
    assert names == ["c", "b", "a"]
    assert ask("GetJobQueueSnapshot", jobQueue=QUEUE)["queueUtilization"]["totalCapacityUsage"] == [
        {"capacityUnit": "VCPU", "quantity": 0.25}
    ]
    assert running.status == "RUNNING"


def test_lists_have_running_jobs_unless_they_are_asked_for_others(account: Account) -> None:
    """https://docs.aws.amazon.com/batch/latest/APIReference/API_ListJobs.html"""
    submit(account, "runs", vcpus=32)
    submit(account, "waits")

    def names(**asked: Any) -> list[str]:
        return [row["jobName"] for row in ask("ListJobs", jobQueue=QUEUE, **asked)["jobSummaryList"]]

    assert names() == ["runs"]
    assert names(jobStatus="RUNNABLE") == ["waits"]
    assert names(filters=[{"name": "JOB_NAME", "values": ["WAIT*"]}]) == ["waits"]
    assert names(filters=[{"name": "JOB_DEFINITION", "values": [DEFINITION]}]) == ["waits", "runs"]


def test_a_job_that_outlives_its_limit_is_ended_and_not_tried_again(account: Account) -> None:
    job = submit(account, timeout={"attemptDurationSeconds": 60})
    step(account.rules)
    account.rules.at += timedelta(seconds=61).total_seconds()
    assert described(job)["status"] == "RUNNING"
    end(account, job, 75)
    assert (job.status, job.reason) == ("FAILED", "Job attempt duration exceeded timeout")


@pytest.mark.parametrize(
    "wrong",
    [
        {"jobQueue": "aws-ddp-toolkit-none-ec2"},
        {"jobDefinition": "none"},
        {"jobName": "-job"},
        {"shareIdentifier": "a_b"},
        {"schedulingPriorityOverride": 10_000},
        {"timeout": {"attemptDurationSeconds": 59}},
        {"retryStrategy": {"attempts": 11}},
        {"retryStrategy": {"evaluateOnExit": [{"action": "EXIT"}]}},
        {"containerOverrides": {"vcpus": 1}},
        {"containerOverrides": {"command": [""]}},
        {"containerOverrides": {"environment": [{"name": "AWS_BATCH_X", "value": "1"}]}},
        {"containerOverrides": {"resourceRequirements": [{"type": "MEMORY", "value": "700"}]}},
        {"consumableResourcePropertiesOverride": {"consumableResourceList": [{"consumableResource": "x"}]}},
    ],
    ids=lambda value: next(iter(value)),
)
def test_what_batch_would_not_take_is_refused(account: Account, wrong: dict[str, Any]) -> None:
    with pytest.raises(AwsError) as error:
        submit(account, **wrong)
    assert error.value.aws_code == "ClientException"
    assert account.rules.batch.jobs == {}


class _Template(yaml.SafeLoader):
    """Reads CloudFormation's functions as what they are applied to."""


_Template.add_multi_constructor("!", lambda loader, _tag, node: getattr(node, "value", None))


def test_the_rehearsed_definition_is_the_stacks() -> None:
    template = yaml.load(Path(ROOT, "infra/cloudformation/queue.yaml").read_text(), _Template)
    stack, ours = template["Resources"]["Controller"]["Properties"], controller("us-east-1", "123456789012")

    def lower(value: Any) -> Any:
        if isinstance(value, dict):
            return {key[0].lower() + key[1:]: lower(one) for key, one in value.items()}
        return [lower(one) for one in value] if isinstance(value, list) else value

    same = ("retryStrategy", "platformCapabilities", "propagateTags", "schedulingPriority", "jobDefinitionName")
    assert {key: lower(stack)[key] for key in same} == {key: ours[key] for key in same}
    sizes = lower(stack)["containerProperties"]["resourceRequirements"]
    assert sizes == ours["containerProperties"]["resourceRequirements"]
