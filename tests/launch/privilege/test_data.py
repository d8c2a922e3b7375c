"""Least privilege of launch.data: a user with infra/iam/data.json only runs every verb, on a moto that evaluates
policies for every call; and of the instance of publish --by instance.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from launch.aws.client import Aws
from launch.aws.names import tags as job_tags
from launch.data import upload
from launch.rehearse.aws.ec2.account import Ec2Account
from launch.rehearse.aws.iam.needs import AccountView, needs
from launch.rehearse.aws.iam.policies import Need, actions, allows, policy
from tests.launch.data.desk import NAME, Desk, opened, write_prepared
from tests.launch.faults import Died, Faults, Request, died_after, injected
from tests.launch.privilege.documented import documented, uses
from tests.launch.privilege.enforced import Watch, enforced, idle
from tests.launch.privilege.publishing import by_instances

ELSEWHERE = "eu-west-1"
OURS = {"aws-ddp-toolkit:dataset": "photos", "aws-ddp-toolkit:digest": "0", "aws-ddp-toolkit:blocks": "0"}
ROLE = "arn:aws:iam::123456789012:role/aws-ddp-toolkit-publisher"
VIEW = AccountView("123456789012", "us-east-1", lambda name: OURS if name == "snap-ours" else {}, lambda name: [ROLE])


@contextmanager
def watched(folder: str) -> Iterator[tuple[Desk, Watch]]:
    with opened(Path(folder)) as desk:
        there = Ec2Account(ELSEWHERE, rules=desk.account.rules)
        there.make_bucket(there.bucket)
        with enforced(desk.account, "data") as watch:
            desk.make_aws = cache(partial(Aws, policy="data"))
            yield desk, watch


@cache
def all_commands() -> Watch:
    """The calls of all verbs, with an interrupted upload and a job that runs; fails where a verb does."""
    with TemporaryDirectory() as folder, watched(folder) as (desk, watch), pytest.MonkeyPatch.context() as patch:
        patch.setattr(upload, "PART", 5 * 2**20)  # the least that S3 takes
        write_prepared(desk.folder, (6_000_000, 40_000))
        with injected(Faults()) as faults:
            faults.on("UploadPart", died_after())
            with pytest.raises(Died):
                desk.publish()
        start_job(desk)
        for words in ((), ("--dry-run",)):
            assert desk.publish(*words) == 0, desk.text
        write_prepared(desk.folder, (6_000_000, 40_000), seed=1)
        assert desk.publish("--replace", "--verify", "sample", "--upload-mbit-s", "8") == 0, desk.text
        assert desk.publish("--to", "snapshot") == 0, desk.text
        assert desk.type("publish", str(desk.folder / "train"), "--name", "plain", "--plain", "--dry-run") == 0, (
            desk.text
        )
        for words in (("list",), ("show", NAME), ("copy", NAME, "--to-region", ELSEWHERE, "--dry-run"),
                      ("copy", NAME, "--to-region", ELSEWHERE), ("delete", NAME, "--dry-run"),
                      ("delete", NAME, "--yes")):  # fmt: skip
            assert desk.type(*words) == 0, desk.text
        watch.typed = desk.typed
        return watch


def start_job(desk: Desk) -> None:
    """One that reads something else."""
    desk.account.put_json("jobs/one/job.json", {"backend": "ec2", "snapshot": "snap-1", "where": {}})
    tags = job_tags("one", desk.account.bucket, datetime.now(UTC))
    node = {"ImageId": desk.account.ami, "MinCount": 1, "MaxCount": 1, "InstanceType": "g5.2xlarge",
            "TagSpecifications": [{"ResourceType": "instance", "Tags": tags}]}  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")  # not the user's
        desk.account.aws().call("ec2", "RunInstances", node)


def test_every_verb_works_with_this_policy_alone() -> None:
    assert all_commands().refused == []
    assert len(all_commands().calls) > 100


def test_every_documented_use_is_among_them() -> None:
    without_a_verb = {("", "")}  # as the module is called
    typed = uses([*all_commands().typed, *by_instances()[0].typed])
    assert documented("launch.data") - typed == without_a_verb


def granted() -> list[Need]:
    """With an instance it takes a launcher's policies, too; see test_publishing.py."""
    return [*all_commands().granted, *by_instances()[0].granted]


def test_every_grant_is_needed_by_a_verb() -> None:
    needed = {need.action for need in granted()}
    # Asked for each training job that runs; here there is none.
    assert actions("data") - needed == {"sagemaker:DescribeTrainingJob"}


def test_every_statement_is_needed() -> None:
    assert idle("data", granted()) == set()


# ---- publish --by instance: who starts the instance, and the instance itself


def test_who_starts_it_needs_these_policies_and_the_instance_its_own_alone() -> None:
    mine, its = by_instances()
    assert (mine.refused, its.refused) == ([], [])
    assert len(its.granted) > 20


def test_every_grant_of_the_instance_is_needed() -> None:
    _, its = by_instances()
    # Asked for each training job that runs; here there is none.
    assert actions("publisher") - {need.action for need in its.granted} == {"sagemaker:DescribeTrainingJob"}
    assert idle("publisher", its.granted) == set()


@pytest.mark.parametrize("who", ["data", "launcher"])
def test_it_takes_both_policies_to_start_one(who: str) -> None:
    """Who launches jobs cannot change what they read, and who publishes data starts nothing with that alone."""
    request = Request("ec2", "RunInstances", {
        "MinCount": 1, "MaxCount": 1, "ImageId": "ami-1", "IamInstanceProfile": {"Name": "aws-ddp-toolkit-publisher"},
    })  # fmt: skip
    assert not all(allows([policy(who)], need) for need in needs(request, VIEW))


def test_the_role_is_handed_to_instances_only() -> None:
    for service, may in (("ec2", True), ("lambda", False), ("ecs-tasks", False)):
        need = Need("iam:PassRole", ROLE, {"iam:PassedToService": f"{service}.amazonaws.com"})
        assert allows([policy("data")], need) is may
        assert not allows([policy("launcher")], need)
