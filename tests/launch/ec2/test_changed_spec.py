"""job.json lies in a bucket that launchers share: who rewrites another's starts no node of that job with it."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from launch.core.errors import AwsError, Ended
from launch.core.names import tags
from launch.ec2 import requests
from launch.ec2.fleet import Fleet
from launch.ec2.names import SPEC_TAG
from launch.ec2.vouched import digest, unfinished
from tests.launch.ec2.account import Account
from tests.launch.ec2.known import NAME
from tests.launch.ec2.world import Stage, idle
from trainer.errors import SettingsError

SPEC = f"jobs/{NAME}/job.json"
THEIRS = {
    "image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/aws-ddp-toolkit@sha256:" + "6" * 64,
    "ami": "ami-06666666666666666",
    "snapshot": "snap-06666666666666666",
    "train": ["--dataset", "digits"],
}


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Account.opened() as account:
        yield Stage(account)


def rewrite(stage: Stage, **changes: Any) -> None:
    """Another launcher writes into the job's folder, which IAM allows."""
    stage.account.put_json(SPEC, {**(stage.account.s3(SPEC) or {}), **changes})


def without_groups(stage: Stage) -> None:
    """Has the job use a group of the user's own, which carries no tags of the job."""
    vpc = stage.aws.call("ec2", "DescribeVpcs")["Vpcs"][0]["VpcId"]
    group = stage.aws.call("ec2", "CreateSecurityGroup", {"GroupName": "mine", "Description": "-", "VpcId": vpc})
    stage.always = {"security_group": group["GroupId"], "placement_group": False}


@pytest.mark.parametrize("what", THEIRS)
def test_lost_nodes_are_not_replaced_by_a_job_json_that_was_changed(what: str, stage: Stage) -> None:
    def attack() -> None:
        rewrite(stage, **{what: THEIRS[what]})
        stage.lose_node(1)()

    stage.events = iter([*idle(2), attack])

    with pytest.raises(Ended, match="is not the one it was started with"):
        stage.launch()

    assert len(stage.account.asked("RunInstances")) == 1
    assert stage.account.left() == []


def test_nor_does_changing_its_start_help(stage: Stage) -> None:
    def attack() -> None:
        rewrite(stage, image=THEIRS["image"], started=1)
        stage.lose_node(1)()

    stage.events = iter([*idle(2), attack])

    with pytest.raises(Ended, match="is not the one it was started with"):
        stage.launch()

    assert len(stage.account.asked("RunInstances")) == 1


def attached(stage: Stage) -> int:
    return stage.attach()


def again(stage: Stage) -> int:
    return stage.launch()


@pytest.mark.parametrize("command", [attached, again])
def test_another_command_asks_the_tags_of_the_nodes_that_are_left(
    command: Callable[[Stage], int], stage: Stage
) -> None:
    """It has not started the job, and so knows it by its tags only, which nobody else can change."""
    stage.where = {"detach": True}
    stage.launch()
    stage.report()()
    rewrite(stage, image=THEIRS["image"])
    stage.lose_node(1)()

    with pytest.raises(AwsError, match="is not the one it was started with"):
        command(stage)

    assert len(stage.account.asked("RunInstances")) == 1


def test_where_no_node_is_left_the_tags_of_the_jobs_groups_are_asked(stage: Stage) -> None:
    stage.where = {"detach": True}
    stage.launch()
    rewrite(stage, image=THEIRS["image"])
    for rank in (0, 1):
        stage.lose_node(rank)()

    with pytest.raises(AwsError, match="is not the one it was started with"):
        stage.launch()

    assert len(stage.account.asked("RunInstances")) == 1


def test_where_nothing_is_left_the_image_is_looked_up_and_not_taken_from_job_json(stage: Stage) -> None:
    """A group of the user's own carries no tags of the job; all nodes are lost, so none has to be as before."""
    without_groups(stage)
    stage.where = {"detach": True}
    stage.launch()
    ours = stage.account.s3(SPEC)
    assert ours is not None
    for rank in (0, 1):
        stage.lose_node(rank)()
    rewrite(stage, image=THEIRS["image"])

    stage.launch()

    assert stage.account.s3(SPEC)["image"] == ours["image"]  # type: ignore[index]
    assert len(stage.account.asked("RunInstances")) == 2


def test_without_groups_the_nodes_that_are_left_are_asked(stage: Stage) -> None:
    without_groups(stage)
    stage.where = {"detach": True}
    stage.launch()
    stage.report()()
    rewrite(stage, image=THEIRS["image"])
    stage.lose_node(1)()

    with pytest.raises(AwsError, match="is not the one it was started with"):
        stage.launch()

    assert len(stage.account.asked("RunInstances")) == 1


def test_who_follows_a_job_knows_what_it_was_started_with_though_nothing_is_left_to_ask(stage: Stage) -> None:
    without_groups(stage)

    def attack() -> None:
        rewrite(stage, image=THEIRS["image"])
        for rank in (0, 1):
            stage.lose_node(rank)()

    stage.events = iter([*idle(2), attack])

    with pytest.raises(Ended, match="is not the one it was started with"):
        stage.launch()

    assert len(stage.account.asked("RunInstances")) == 1


def test_nobody_finds_another_job_json_of_the_same_digest_by_trying() -> None:
    assert len(digest({"job": NAME})) * 4 >= 128  # bits


@pytest.mark.parametrize("what", ["job", "backend", "region", "where", *THEIRS])
def test_the_tag_holds_everything_that_decides_what_a_node_runs(what: str) -> None:
    """`where` has the references of secrets, the instance profile and the number of nodes."""
    ours = {"job": NAME, "where": {"nodes": 2}}
    living = Fleet(specs={NAME: frozenset({digest(ours)})})

    with pytest.raises(AwsError, match="is not the one it was started with"):
        unfinished({**ours, what: {"nodes": 9}}, living, NAME, "")


def test_who_started_a_job_believes_no_tags_and_others_none_that_disagree() -> None:
    ours, theirs = {"job": NAME}, {"job": NAME, "image": THEIRS["image"]}

    for known, vouching in ((digest(ours), [theirs]), ("", [ours, theirs])):
        fleet = Fleet(specs={NAME: frozenset(map(digest, vouching))})
        with pytest.raises(AwsError, match="is not the one it was started with"):
            unfinished(theirs, fleet, NAME, known)


def test_a_start_that_has_ended_decides_nothing_though_something_of_it_is_left() -> None:
    left = Fleet(specs={NAME: frozenset({digest({"job": NAME})})})
    assert unfinished({"job": NAME}, left, NAME, "") == {"job": NAME}
    assert unfinished({"job": NAME, "ended": 1}, left, NAME, "") == {}


def test_what_another_launcher_made_in_the_jobs_name_vouches_for_nothing(stage: Stage) -> None:
    """A launcher may write any job, and any digest, into the tags of its own things: here those of its own job.json."""
    spec = {**requests.spec(stage.plan().payload.cluster), "image": THEIRS["image"]}
    stage.account.put_json(SPEC, spec)
    now = datetime.now(UTC)
    named = [*tags(NAME, stage.account.bucket, now, now + timedelta(hours=9), "AIDAYOU"),
             {"Key": SPEC_TAG, "Value": digest(spec)}]  # fmt: skip
    theirs = {"ImageId": stage.account.ami, "InstanceType": "g5.2xlarge", "MinCount": 1, "MaxCount": 1,
              "TagSpecifications": [{"ResourceType": "instance", "Tags": named}]}  # fmt: skip
    stage.aws.call("ec2", "RunInstances", theirs)

    with pytest.raises(
        SettingsError, match=r"belongs to AIDAYOU, and only its owner can continue a job; .* --job-name"
    ):
        stage.launch()

    assert len(stage.account.asked("RunInstances")) == 1  # the stranger's own
    assert stage.account.s3(SPEC) == spec


def test_an_unchanged_one_still_keeps_the_image_of_the_first_start(stage: Stage) -> None:
    stage.where = {"detach": True}
    stage.launch()
    ours = stage.account.s3(SPEC)
    assert ours is not None
    stage.account.make_image("aws-ddp-toolkit", "latest", "sha256:" + "7" * 64)
    stage.lose_node(1)()

    stage.launch()

    assert stage.account.s3(SPEC)["image"] == ours["image"]  # type: ignore[index]
    assert len(stage.account.asked("RunInstances")) == 2
