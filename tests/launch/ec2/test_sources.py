"""The source of a script on EC2: it is sent once, and serves every job that needs it."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from moto.iam.models import iam_backends

from launch.aws.names import ROLES_TAG, SHARED_SINCE, STACK_TAG
from launch.core.job import Job
from launch.core.perform import perform
from launch.core.plan import Plan, as_json
from launch.core.source.find import find
from launch.core.training.script import Script
from launch.ec2.options import Ec2Options
from launch.ec2.planner import Launch
from launch.ec2.regions import plan_job
from launch.ec2.requests import user_data
from tests.launch.ec2.account import SCHEDULER_ROLE, Account
from tests.launch.ec2.world import Stage

Planned = Callable[..., Plan[Launch]]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    (tmp_path / "train.py").write_text("print(1)")
    source = find(Path("train.py"), None, None, tmp_path)
    return Script(("train.py",), source=source, digest=source.digest)


@pytest.fixture
def planned(account: Account, script: Script) -> Planned:
    stage = Stage(account)

    def plan(job: str, train: Script = script) -> Plan[Launch]:
        made = plan_job(Job(train, Ec2Options.model_validate({"nodes": 2, "job_name": job})), stage.runtime())
        assert made.problem is None
        return made

    return plan


def start(made: Plan[Launch], account: Account) -> list[str]:
    """Performs a plan; returns the keys of what was written."""
    before = len(account.requests)
    perform(made.steps, Stage(account).aws.call, lambda _: None, lambda _: None)
    return [call.params["Key"] for call in account.requests[before:] if call.operation == "PutObject"]


def fetched(made: Plan[Launch]) -> str:
    """Where the nodes of a plan get the source from."""
    cluster = made.payload.cluster
    (found,) = re.findall(r"^SOURCE=(\S+)", user_data(cluster, cluster.resolved.instances[0]), re.MULTILINE)
    return str(found)


def test_a_second_job_of_the_same_source_sends_nothing_and_says_so(
    planned: Planned, account: Account, script: Script
) -> None:
    first = planned("first")
    key = f"scripts/{first.payload.cluster.started:%Y-%m}/{script.digest}/source.tar.gz"
    assert start(first, account) == [key, "jobs/first/job.json"]
    account.requests.clear()

    second = planned("second")

    assert start(second, account) == ["jobs/second/job.json"]
    assert fetched(first) == fetched(second) == f"s3://{account.bucket}/{key}"
    already_there = [json.loads(as_json(made))["facts"]["script_source"]["already_there"] for made in (first, second)]
    assert already_there == [False, True]
    assert [call.operation for call in account.requests if call.params.get("Key") == key] == ["HeadObject"]


def test_what_replaces_a_node_without_the_laptop_that_sent_it_finds_the_source(
    planned: Planned, account: Account, script: Script
) -> None:
    """`attach` from elsewhere knows the digest only, of job.json."""
    made = planned("job")
    start(made, account)

    there = planned("job", replace(script, source=None))

    assert fetched(there) == fetched(made)


def test_of_two_jobs_that_begin_at_once_one_sends_and_both_go_on(planned: Planned, account: Account) -> None:
    """S3 answers the second with PreconditionFailed.
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
    """
    first, second = planned("first"), planned("second")
    assert len(start(first, account)) == len(start(second, account)) == 2
    assert len([key for key in account.s3_keys() if key.startswith("scripts/")]) == 1


def test_nodes_of_an_older_stack_that_could_not_read_the_source_are_not_paid_for(
    account: Account, script: Script
) -> None:
    tags = {STACK_TAG: "eu-west-1", ROLES_TAG: str(SHARED_SINCE - 1)}
    iam_backends[account.id]["aws"].tag_role(SCHEDULER_ROLE, [{"Key": k, "Value": v} for k, v in tags.items()])
    runtime = Stage(account).runtime()

    def problem(**where: object) -> str:
        options = Ec2Options.model_validate({"nodes": 2, "job_name": "job", **where})
        return str(plan_job(Job(script, options), runtime).problem or "")

    assert "eu-west-1" in problem()
    account.make_profile("mine")
    assert problem(instance_profile="mine") == ""
