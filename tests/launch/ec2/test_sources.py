"""The source of a script on EC2: it is sent once, and serves every job that needs it."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from moto.iam.models import iam_backends

from launch.aws.names import ROLES_TAG, SHARED_SINCE, STACK_TAG
from launch.core.errors import AwsError, Ended
from launch.core.job import Job
from launch.core.perform import perform
from launch.core.plan import Plan, as_json, as_text
from launch.core.source.find import find
from launch.core.training.script import Script
from launch.ec2.options import Ec2Options
from launch.ec2.planner import Launch
from launch.ec2.regions import plan_job
from launch.ec2.requests import user_data
from launch.ec2.start import launch
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
    told = [json.loads(as_json(made))["facts"]["script_source"]["already_there"] for made in (first, second)]
    assert told == [False, True]
    line = "already there, nothing is sent"
    assert [line in as_text(made) for made in (first, second)] == [False, True]
    assert [call.operation for call in account.requests if call.params.get("Key") == key] == ["HeadObject"]


def test_what_replaces_a_node_without_the_laptop_that_sent_it_finds_the_source(
    planned: Planned, account: Account, script: Script
) -> None:
    """`attach` from elsewhere knows the digest only, of job.json."""
    made = planned("job")
    start(made, account)

    there = planned("job", replace(script, source=None))

    assert fetched(there) == fetched(made)


def test_a_job_of_another_month_sends_the_source_again_as_the_old_one_expires(planned: Planned) -> None:
    cluster = planned("job").payload.cluster
    later = replace(cluster, started=cluster.started.replace(year=cluster.started.year + 1))
    assert cluster.source_key != later.source_key
    assert cluster.source_key.endswith(f"/{cluster.train.digest}/source.tar.gz")


def test_of_two_jobs_that_begin_at_once_one_sends_and_both_go_on(planned: Planned, account: Account) -> None:
    """S3 answers the second with PreconditionFailed.
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
    """
    first, second = planned("first"), planned("second")
    assert len(start(first, account)) == len(start(second, account)) == 2
    assert len([key for key in account.s3_keys() if key.startswith("scripts/")]) == 1


def test_what_somebody_else_put_in_its_place_starts_nothing(planned: Planned, account: Account) -> None:
    account.put_json(planned("job").payload.cluster.source_key, "os.system('steal')")

    made = planned("job")
    with pytest.raises(AwsError, match="Change the source, were it a comment"):
        start(made, account)

    assert "already there" not in as_text(made)
    assert account.nodes == []


def test_a_launch_that_is_refused_for_its_source_leaves_the_jobs_name_free(
    planned: Planned, account: Account, tmp_path: Path
) -> None:
    """The remedy is to change the source, and then it is another job."""
    account.put_json(planned("job").payload.cluster.source_key, "somebody else's")
    there = account.s3_keys()
    stage = Stage(account)

    with pytest.raises(Ended, match="Change the source, were it a comment"):
        launch(planned("job"), stage.runtime())
    assert account.s3_keys() == there
    assert account.left() == []

    (tmp_path / "train.py").write_text("print(1)  # mine")
    source = find(Path("train.py"), None, None, tmp_path)
    assert "jobs/job/job.json" in start(
        planned("job", Script(("train.py",), source=source, digest=source.digest)), account
    )


def test_nodes_of_an_older_stack_that_could_not_read_the_source_are_not_paid_for(
    account: Account, script: Script
) -> None:
    tags = {STACK_TAG: "eu-west-1", ROLES_TAG: str(SHARED_SINCE - 1)}
    iam_backends[account.id]["aws"].tag_role(SCHEDULER_ROLE, [{"Key": k, "Value": v} for k, v in tags.items()])
    runtime = Stage(account).runtime()

    def problem(**where: object) -> str:
        options = Ec2Options.model_validate({"nodes": 2, "job_name": "job", **where})
        return str(plan_job(Job(script, options), runtime).problem or "")

    assert problem().startswith("nodes may not read the script's source: the account's stack in eu-west-1 is older")
    account.make_profile("mine")
    assert problem(instance_profile="mine") == ""


def test_what_lies_in_an_archive_where_no_node_can_read_it_is_not_taken_for_there(
    planned: Planned, account: Account
) -> None:
    """S3 tells its SHA-256 all the same, and refuses to read it.
    https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadObject.html, x-amz-storage-class
    """
    (request,) = [step for step in planned("job").steps if "ChecksumSHA256" in getattr(step, "params", {})]
    Stage(account).aws.call("s3", "PutObject", {**request.params, "StorageClass": "GLACIER"})

    assert "already there" not in as_text(planned("job"))
