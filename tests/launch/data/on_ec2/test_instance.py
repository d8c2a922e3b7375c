"""launch.data publish s3://... --by instance: what is in the account meanwhile and afterwards."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.scheduler.models import scheduler_backends

from launch.aws.instances.inventory import Fleet
from launch.aws.names import is_ours
from launch.ec2 import leaks
from tests.launch.data.on_ec2.desk import NAME, SHUT_DOWN, Ec2Desk, opened, tags_of
from tests.launch.faults import Died, Fault, Faults, died_after, injected, lost, refused, throttled


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Ec2Desk]:
    with opened(tmp_path) as desk:
        yield desk


def test_an_instance_publishes_what_is_in_s3_and_nothing_of_it_is_left(desk: Ec2Desk) -> None:
    assert desk.publish_s3() == 0, desk.text + "\n".join(desk.told)

    (snapshot,) = desk.snapshots()
    assert (desk.record["state"], desk.record["snapshot"], desk.record["verified"]) == ("published", snapshot.id, "all")
    assert (desk.ran, desk.billed()) == (1, [])
    assert "use it:" in desk.text

    assert desk.type("delete", NAME, "--yes") == 0, desk.text
    assert [key for key in desk.account.s3_keys() if not key.startswith("sources/")] == []


def test_the_instance_is_as_careful_as_a_jobs_node(desk: Ec2Desk) -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html"""
    desk.node = Ec2Desk.pretend_on
    assert desk.publish_s3() == 0, desk.text

    (asked,) = [call.params for call in desk.account.requests if call.operation == "RunInstances"]
    assert (asked["MinCount"], asked["MaxCount"], asked["InstanceType"]) == (1, 1, "c6id.2xlarge")
    assert asked["MetadataOptions"] == {"HttpTokens": "required", "HttpEndpoint": "enabled",
                                        "HttpPutResponseHopLimit": 1}  # fmt: skip
    assert asked["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert asked["IamInstanceProfile"] == {"Name": "aws-ddp-toolkit-publisher"}
    assert "KeyName" not in asked
    assert "InstanceMarketOptions" not in asked  # on demand
    assert [disk["Ebs"]["Encrypted"] for disk in asked["BlockDeviceMappings"]] == [True]
    for kind in asked["TagSpecifications"]:
        tags = {tag["Key"]: tag["Value"] for tag in kind["Tags"]}
        assert is_ours(tags)
        assert tags["aws-ddp-toolkit:owner"]
    rules = [
        call for call in desk.account.requests if "SecurityGroup" in call.operation and "Describe" not in str(call)
    ]
    assert [call.operation for call in rules] == ["CreateSecurityGroup", "AuthorizeSecurityGroupEgress",
                                                  "RevokeSecurityGroupEgress", "RevokeSecurityGroupEgress",
                                                  "DeleteSecurityGroup"]  # fmt: skip
    (opened_port,) = rules[1].params["IpPermissions"]
    assert (opened_port["IpProtocol"], opened_port["FromPort"], opened_port["ToPort"]) == ("tcp", 443, 443)


def test_the_time_limit_is_set_before_anything_is_billed(desk: Ec2Desk) -> None:
    """https://docs.aws.amazon.com/scheduler/latest/APIReference/API_CreateSchedule.html"""
    desk.node = Ec2Desk.pretend_on
    assert desk.publish_s3("--max-hours", "2") == 0, desk.text

    made = [call.operation for call in desk.writes()]
    assert made.index("CreateSchedule") < made.index("RunInstances")
    (limit,) = [call.params for call in desk.account.requests if call.operation == "CreateSchedule"]
    assert limit["ActionAfterCompletion"] == "DELETE"
    assert re.fullmatch(r"at\(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\)", limit["ScheduleExpression"])
    (asked,) = [call.params for call in desk.account.requests if call.operation == "RunInstances"]
    assert "\nMINUTES=120" in asked["UserData"]  # and on the instance itself


def test_what_hangs_is_ended_at_its_time_limit(
    desk: Ec2Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.node = lambda desk, instance: None
    monkeypatch.setattr("launch.data.on_ec2.commands.LOOK_S", 240.0)

    assert desk.publish_s3("--max-hours", "0.5") == 6, desk.text
    assert "its time limit has come; run the same command again" in capsys.readouterr().err
    assert desk.billed() == []


def test_a_user_who_leaves_finds_the_same_instance_again(desk: Ec2Desk) -> None:
    def leaves(desk: Ec2Desk, instance: Any) -> None:
        raise KeyboardInterrupt

    desk.node = leaves
    assert desk.publish_s3() == 130
    (there,) = desk.instances
    assert desk.type("list") == 0
    assert f"{there.id} (c6id.2xlarge) publishes {NAME}, until " in desk.text
    desk.account.put_json(f"data/{NAME}/published.json", {"name": NAME, "state": "published", "digest": 64 * "0"})
    assert desk.type("delete", NAME, "--yes") == 2  # it would be published again behind the user's back
    assert desk.s3()
    desk.account.objects().pop(f"data/{NAME}/published.json")

    desk.node = Ec2Desk.pretend_on
    since = len(desk.account.requests)
    assert desk.publish_s3() == 0, desk.text
    assert (desk.ran, desk.billed()) == (1, [])
    assert "RunInstances" not in [call.operation for call in desk.writes(since)]


def test_what_was_published_while_nobody_looked_is_not_published_again(desk: Ec2Desk) -> None:
    desk.node = Ec2Desk.pretend_on
    for _ in range(2):
        assert desk.publish_s3() == 0, desk.text
    assert desk.ran == 1
    assert f"{NAME} is already published from there; add --replace" in desk.text


def test_who_begins_at_the_same_time_goes_on_with_the_one_that_was_first(desk: Ec2Desk) -> None:
    """https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html: 412 for the second.  Here the
    first is this user's own: its answer was lost, and botocore repeats the request.
    """
    desk.node = Ec2Desk.pretend_on
    with injected(Faults()) as faults:
        faults.on("PutObject", lost(attempts=1), nth=2)  # the first is the code
        assert desk.publish_s3() == 0, desk.text
    notes = [call.params for call in desk.writes() if call.params.get("Key", "").endswith("run.json")]
    assert [note.get("IfNoneMatch") or bool(note.get("IfMatch")) for note in notes] == ["*", True]
    assert (desk.ran, desk.billed()) == (1, [])


def test_other_settings_wait_for_the_instance_that_runs(desk: Ec2Desk, capsys: pytest.CaptureFixture[str]) -> None:
    with injected(Faults()) as faults:
        faults.on("RunInstances", died_after())
        with pytest.raises(Died):
            desk.publish_s3()
    assert desk.publish_s3("--originals") == 2
    assert "from s3://" in (words := capsys.readouterr().err)
    assert f"python -m launch.data stop {NAME}" in words


def test_stop_ends_an_instance_too_that_ec2_lists_and_does_not_know_yet(desk: Ec2Desk) -> None:
    """It was never asked for again: stop gave up after ten minutes, and the instance was billed on."""
    desk.node = lambda desk, instance: None
    with injected(Faults().on("RunInstances", died_after())), pytest.raises(Died):
        desk.publish_s3()
    assert len(desk.instances) == 1
    with injected(Faults().on("TerminateInstances", refused("InvalidInstanceID.NotFound", 400))):
        assert desk.type("stop", NAME) == 0, desk.text
    assert (desk.instances, desk.billed()) == ([], [])


@pytest.mark.parametrize(
    "operation",
    ["TerminateInstances", "DescribeInstances", "DeleteSecurityGroup", "GetObject", "PutObject", "GetCallerIdentity"],
)
def test_a_stop_bears_an_account_that_asks_too_much_for_a_while(operation: str, desk: Ec2Desk) -> None:
    """The account's other users and tools share its limit of requests; nothing was ended when one of ours met it."""
    desk.node = lambda desk, instance: None
    with injected(Faults().on("RunInstances", died_after())), pytest.raises(Died):
        desk.publish_s3()
    with injected(Faults().on(operation, throttled())):
        assert desk.type("stop", NAME) == 0, desk.text
    assert (desk.instances, desk.billed()) == ([], [])


@pytest.mark.parametrize("fault", [refused("AccessDenied", 403), refused("ServiceUnavailable", 503)])
def test_a_stop_ends_the_instance_though_the_bucket_does_not_answer(fault: Fault, desk: Ec2Desk) -> None:
    """EC2 alone can end what costs money; what S3 says of the run is for the rest of what it has."""
    desk.node = lambda desk, instance: None
    with injected(Faults().on("RunInstances", died_after())), pytest.raises(Died):
        desk.publish_s3()
    with injected(Faults().on("GetObject", fault, nth=None)):
        assert desk.type("stop", NAME) == 4
    assert {instance.state for instance in desk.instances} <= {"shutting-down"}
    assert desk.type("stop", NAME) == 0, desk.text
    assert desk.billed() == []


def test_stop_ends_it_and_leaves_only_the_snapshot_to_go_on_with(desk: Ec2Desk) -> None:
    with injected(Faults()) as faults:
        faults.on("PutSnapshotBlock", died_after(), nth=2)
        with pytest.raises(Died):
            desk.publish_s3()
    (pending,) = desk.snapshots()
    assert len(desk.instances) == 1

    desk.node = lambda desk, instance: None
    assert desk.type("stop", NAME) == 0, desk.text
    assert (desk.instances, desk.billed()) == ([], [])

    desk.node = Ec2Desk.publish_on
    assert desk.publish_s3() == 0, desk.text
    assert [one.id for one in desk.snapshots()] == [pending.id]
    assert desk.type("stop", NAME) == 0
    assert f"no instance publishes {NAME}" in desk.text


def test_what_fails_on_the_instance_ends_the_command_with_its_code_and_reason(
    desk: Ec2Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(desk: Ec2Desk, instance: Any) -> None:
        desk.say_end(instance, 3, "cat/0.jpg cannot be read.")
        desk.account.kill(instance.id, SHUT_DOWN)

    desk.node = fails
    assert desk.publish_s3() == 3
    assert "cat/0.jpg cannot be read." in (said := capsys.readouterr().err)
    assert f"data-runs/{NAME}/log.txt" in said
    assert desk.billed() == []


def test_without_capacity_in_any_zone_nothing_stays(desk: Ec2Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.account.capacity.update(dict.fromkeys(desk.account.subnets, 0))

    assert desk.publish_s3() == 4
    assert "no capacity" in (said := capsys.readouterr().err)
    assert "Try again later, or with another --instance-type, --subnet or --region." in said  # which publish has
    assert desk.billed() == []


def test_an_instance_that_is_refused_leaves_nothing(desk: Ec2Desk, capsys: pytest.CaptureFixture[str]) -> None:
    with injected(Faults()) as faults:
        faults.on("RunInstances", refused("VcpuLimitExceeded", 400))
        assert desk.publish_s3() == 4
    assert "vCPU quota is used up" in capsys.readouterr().err
    assert desk.billed() == []


def test_jobs_leaks_and_sweepers_know_it_as_they_know_a_jobs_node(desk: Ec2Desk) -> None:
    from launch.aws.instances.inventory import find

    desk.node = lambda desk, instance: None
    with injected(Faults()) as faults:
        faults.on("RunInstances", died_after())
        with pytest.raises(Died):
            desk.publish_s3()
    (there,) = desk.instances
    fleet: Fleet = find(desk.account.aws())
    (finding,) = leaks.leaks_of(fleet, "us-east-1", fleet.living[0].launched_at)
    assert (finding.job, finding.is_leak, finding.why) == (desk.run["id"], False, "within its time limit")
    assert tags_of(there)["aws-ddp-toolkit:job"] == desk.run["id"]
    (group,) = scheduler_backends[desk.account.id]["us-east-1"].schedule_groups["aws-ddp-toolkit"].schedules
    assert group == f"aws-ddp-toolkit-{desk.run['id']}"


def test_a_network_without_a_way_out_is_refused(desk: Ec2Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.account.remove_internet_route()
    assert desk.publish_s3() == 2
    assert "could not reach S3, EBS and PyPI" in capsys.readouterr().err
    assert desk.writes() == []


def test_an_account_without_the_role_says_how_to_make_it(desk: Ec2Desk, capsys: pytest.CaptureFixture[str]) -> None:
    from moto.iam.models import iam_backends

    iam_backends[desk.account.id]["aws"].instance_profiles.clear()
    assert desk.publish_s3() == 4
    assert "no instance profile aws-ddp-toolkit-publisher; create it with python -m launch.infra up" in (
        capsys.readouterr().err
    )
