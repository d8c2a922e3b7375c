"""Least privilege of launchers: a user with infra/iam/launcher.json only runs every documented command, on a moto that
evaluates policies for every call, and cannot do anything that the policy is not meant to allow.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from launch.aws.client import Aws
from launch.aws.names import ALLOWED_TAG, DATA_TAG
from launch.aws.refusals import DENIED
from launch.core.errors import AwsError
from launch.rehearse.aws.iam.needs import needs
from launch.rehearse.aws.iam.policies import Need, actions, allows, policy
from tests.launch.ec2.account import Account
from tests.launch.faults import Request
from tests.launch.privilege import watch
from tests.launch.privilege.commands import (
    Shell,
    every_command_on_ec2,
    every_command_on_sagemaker,
    on_ec2,
    on_sagemaker,
)
from tests.launch.privilege.documented import documented, uses
from tests.launch.privilege.enforced import Watch, view_of

# Grants that no call of the launcher needs, and why they are there.
ARGUED = {
    "ec2:DescribeInstanceTypes": "a type that the catalog lacks",
    "ec2:DescribeVpcs": "where a VPC has DNS support off: whether it has DNS servers of its own",
    "ec2:DescribeDhcpOptions": "the same",
    "ssm:StartSession": "`ssh` prints the command that needs it: aws ssm start-session",
    "ssm:ResumeSession": "that command's plugin, when the connection breaks",
    "ssm:TerminateSession": "that command's plugin, at Ctrl-C",
    "ssmmessages:OpenDataChannel": "that command's plugin, to talk to the node at all; "
    "https://docs.aws.amazon.com/systems-manager/latest/userguide/getting-started-restrict-access-quickstart.html",
}
TAGGED = [{"Key": "aws-ddp-toolkit:job", "Value": "j"}]
TAGGED_VOLUME = [{"ResourceType": "volume", "Tags": TAGGED}]
SOMEBODYS = [{"Key": "Name", "Value": "database"}]


@cache
def all_commands() -> tuple[Watch, Watch]:
    """The calls of both launchers; fails where a command does."""
    with on_ec2() as (shell, ec2):
        ec2.typed = every_command_on_ec2(shell)
    with on_sagemaker(instance_type="ml.g5.12xlarge") as (stage, sagemaker):
        sagemaker.typed = every_command_on_sagemaker(stage)
    return ec2, sagemaker


def test_every_documented_command_works_with_the_launchers_policy_alone() -> None:
    for seen in all_commands():
        assert seen.refused == []
        assert len(seen.calls) > 50


def test_every_command_means_every_verb_and_flag_that_is_documented() -> None:
    for module, seen in zip(("launch.ec2", "launch.sagemaker"), all_commands(), strict=True):
        shown = documented(module)
        assert shown - uses(seen.typed) == set()
        assert len(shown) > 20


def test_every_grant_is_needed_by_a_command_or_argued() -> None:
    needed = {need.action for seen in all_commands() for need in seen.granted}
    assert actions("launcher") - needed == ARGUED.keys()


def test_every_statement_is_needed() -> None:
    """Actions are needed somewhere; so is each statement that grants them."""
    granted = [need for seen in all_commands() for need in seen.granted]
    idle = {
        statement["Sid"]
        for statement in policy("launcher")["Statement"]
        if not any(allows([{"Statement": [statement]}], need) for need in granted)
    }
    assert idle == {"Shell", "ShellDocument", "OwnShells"}


# ---- what such a user cannot do


def refused(act: Callable[[], object]) -> str:
    """The permission that the user lacks for it."""
    with pytest.raises(AwsError, match="these credentials may not ") as error:
        act()
    assert error.value.aws_code in DENIED
    return re.split(r"[; ]", str(error.value).split("may not ")[1])[0]


def node(shell: Shell, tags: list[dict[str, str]]) -> str:
    """A machine that somebody else started."""
    kind = {"instance_type": "g5.2xlarge", "is_instance_type_default": False}
    (made,) = shell.account.ec2.run_instances(shell.account.ami, 1, b"", [], **kind).instances
    made.add_tags({tag["Key"]: tag["Value"] for tag in tags})
    return str(made.id)


def test_an_instance_without_the_toolkits_tag_cannot_be_terminated() -> None:
    with on_ec2() as (shell, _):
        theirs, ours, aws = node(shell, SOMEBODYS), node(shell, TAGGED), Aws("us-east-1")
        for ids in ([theirs], [ours, theirs]):
            assert refused(lambda ids=ids: aws.call("ec2", "TerminateInstances", {"InstanceIds": ids})) == (  # type: ignore[misc]
                "ec2:TerminateInstances"
            )
        assert {one.id for one in shell.account.nodes} == {theirs, ours}
        aws.call("ec2", "TerminateInstances", {"InstanceIds": [ours]})
        assert ours not in {one.id for one in shell.account.nodes if one.state == "running"}


def test_nobody_can_tag_somebodys_instance_first() -> None:
    with on_ec2() as (shell, _):
        theirs, aws = node(shell, SOMEBODYS), Aws("us-east-1")
        tag = {"Resources": [theirs], "Tags": TAGGED}
        assert refused(lambda: aws.call("ec2", "CreateTags", tag)) == "ec2:CreateTags"


@cache
def made(operation: str) -> dict[str, Any]:
    """The parameters of such a request of the launcher's own."""
    return next(call.params for seen in all_commands() for call in seen.calls if call.operation == operation)


@pytest.mark.parametrize("kind", ["instance", "volume", "network-interface"])
def test_a_node_cannot_be_started_without_the_tag_on_each_of_its_parts(kind: str) -> None:
    with on_ec2() as (shell, _):
        asked = started_by_hand(shell)
        asked["TagSpecifications"] = [spec for spec in asked["TagSpecifications"] if spec["ResourceType"] != kind]
        assert refused(lambda: Aws("us-east-1").call("ec2", "RunInstances", asked)) == "ec2:RunInstances"
        assert shell.account.nodes == []


def started_by_hand(shell: Shell) -> dict[str, Any]:
    """A request that works, in this account."""
    interface = {"DeviceIndex": 0, "SubnetId": shell.account.subnets["us-east-1a"]}
    return {
        "ImageId": shell.account.ami,
        "InstanceType": "g5.2xlarge",
        "MinCount": 1,
        "MaxCount": 1,
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"Encrypted": True, "VolumeSize": 75}}],
        "NetworkInterfaces": [interface],
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": TAGGED} for kind in ("instance", "volume", "network-interface")
        ],
    }


def test_a_node_starts_from_no_image_disk_or_group_of_somebody_else() -> None:
    """A user with a root shell on a node can read its image and disks, and reach what its groups reach."""
    with on_ec2() as (shell, _):
        asked, aws, ec2 = started_by_hand(shell), Aws("us-east-1"), shell.account.ec2
        image = ec2.register_image(name="somebody's")
        snapshot = ec2.create_snapshot(ec2.create_volume(size=1, zone_name="us-east-1a", volume_type="gp3").id, "")
        group = ec2.get_default_security_group()
        disk = [{"DeviceName": "/dev/sdf", "Ebs": {"SnapshotId": snapshot.id, "Encrypted": True}}]
        wrong: tuple[dict[str, Any], ...] = (
            {"ImageId": image.id},
            {"BlockDeviceMappings": disk},
            {"NetworkInterfaces": [{**asked["NetworkInterfaces"][0], "Groups": [group.id]}]},
        )
        for theirs in wrong:
            assert refused(lambda theirs=theirs: aws.call("ec2", "RunInstances", asked | theirs)) == "ec2:RunInstances"  # type: ignore[misc]
        volume = {"AvailabilityZone": "us-east-1a", "SnapshotId": snapshot.id, "Encrypted": True,
                  "TagSpecifications": TAGGED_VOLUME}  # fmt: skip
        assert refused(lambda: aws.call("ec2", "CreateVolume", volume)) == "ec2:CreateVolume"
        assert shell.account.nodes == []

        for thing, theirs in ((image, wrong[0]), (group, wrong[2])):  # the tag alone is no leave
            thing.add_tags({ALLOWED_TAG: "no"})
            assert refused(lambda theirs=theirs: aws.call("ec2", "RunInstances", asked | theirs)) == "ec2:RunInstances"  # type: ignore[misc]
        image.add_tags({ALLOWED_TAG: "yes"})
        group.add_tags({ALLOWED_TAG: "yes"})
        snapshot.add_tags({DATA_TAG: "imagenet"})
        for ours in wrong:
            assert len(aws.call("ec2", "RunInstances", asked | ours)["Instances"]) == 1
        assert aws.call("ec2", "CreateVolume", volume)["VolumeId"]


def test_a_node_cannot_get_another_role() -> None:
    with on_ec2() as (shell, _):
        aws, asked = Aws("us-east-1"), started_by_hand(shell)
        shell.account.make_profile("admin")
        shell.account.make_profile("aws-ddp-toolkit-sagemaker")  # ours, but not for nodes
        for profile in ("admin", "aws-ddp-toolkit-sagemaker"):
            wrong = {**asked, "IamInstanceProfile": {"Name": profile}}
            assert refused(lambda wrong=wrong: aws.call("ec2", "RunInstances", wrong)) == "iam:PassRole"  # type: ignore[misc]
        assert shell.account.nodes == []
        right = {**asked, "IamInstanceProfile": {"Name": "aws-ddp-toolkit-node"}}
        assert len(aws.call("ec2", "RunInstances", right)["Instances"]) == 1


@pytest.mark.parametrize("role", ["admin", "aws-ddp-toolkit-node", "aws-ddp-toolkit-launcher"])
def test_a_time_limit_and_a_training_job_cannot_get_another_role(role: str) -> None:
    arn = f"arn:aws:iam::123456789012:role/{role}"
    # First, as it may run all commands, and accounts cannot be nested in moto.
    asked, job = made("CreateSchedule"), {**made("CreateTrainingJob"), "RoleArn": arn}
    with on_ec2() as (shell, _):
        asked = {**asked, "Target": {**asked["Target"], "RoleArn": arn}}
        assert refused(lambda: Aws("us-east-1").call("scheduler", "CreateSchedule", asked)) == "iam:PassRole"
        assert shell.account.left() == []
    with on_sagemaker() as (stage, _):
        assert refused(lambda: Aws("us-east-1").call("sagemaker", "CreateTrainingJob", job)) == "iam:PassRole"
        assert stage.account.left() == []


def test_a_training_job_of_somebody_else_cannot_be_stopped() -> None:
    with on_sagemaker() as (stage, watch):
        stage.started("theirs").tags = SOMEBODYS
        name = {"TrainingJobName": "theirs"}
        aws = Aws("us-east-1")
        assert refused(lambda: aws.call("sagemaker", "StopTrainingJob", name)) == "sagemaker:StopTrainingJob"
        assert watch.refused[-1].resource.endswith(":training-job/theirs")


@pytest.mark.parametrize(
    ("service", "operation", "params"),
    [
        ("s3", "GetObject", {"Bucket": "payroll", "Key": "jobs/j/job.json"}),
        ("s3", "PutObject", {"Bucket": "aws-ddp-toolkit-123456789012-us-east-1", "Key": "data/imagenet/train/0.jpg"}),
        ("s3", "DeleteObject", {"Bucket": "aws-ddp-toolkit-123456789012-us-east-1", "Key": "jobs/j/job.json"}),
        ("s3", "ListObjectsV2", {"Bucket": "payroll"}),
        ("logs", "FilterLogEvents", {"logGroupName": "/aws/lambda/payroll"}),
        ("logs", "DeleteLogGroup", {"logGroupName": "/aws-ddp-toolkit/ec2"}),
        ("scheduler", "DeleteSchedule", {"GroupName": "default", "Name": "backup"}),
        ("scheduler", "DeleteSchedule", {"GroupName": "default", "Name": "aws-ddp-toolkit-sweeper"}),
        ("iam", "CreateUser", {"UserName": "mallory"}),
        ("iam", "AttachUserPolicy", {"UserName": "launcher", "PolicyArn": "arn:aws:iam::aws:policy/PowerUserAccess"}),
        ("ssm", "GetParameter", {"Name": "/ddp-toolkit/wandb"}),
        ("secretsmanager", "GetSecretValue", {"SecretId": "ddp-toolkit/wandb"}),
        ("sts", "AssumeRole", {"RoleArn": "arn:aws:iam::123456789012:role/admin", "RoleSessionName": "mallory"}),
    ],
)  # fmt: skip
def test_what_is_not_the_toolkits_stays_out_of_reach(service: str, operation: str, params: dict[str, str]) -> None:
    with on_ec2() as (shell, watch):
        shell.account.make_bucket("payroll")
        assert refused(lambda: Aws("us-east-1").call(service, operation, params))
        assert len(watch.refused) == 1


# ---- the shell on a node, which only the AWS CLI opens


def test_a_shell_opens_on_nodes_of_jobs_only() -> None:
    def may(**context: str) -> bool:
        node = "arn:aws:ec2:us-east-1:123456789012:instance/i-1"
        return allows([policy("launcher")], Need("ssm:StartSession", node, context))

    assert may(**{"ssm:resourceTag/aws-ddp-toolkit:job": "j"})
    assert not may(**{"ssm:resourceTag/Name": "database"})


@pytest.mark.parametrize("action", ["ssm:ResumeSession", "ssm:TerminateSession", "ssmmessages:OpenDataChannel"])
def test_a_shell_can_be_used_and_closed_by_who_opened_it(action: str) -> None:
    def may(session: str) -> bool:
        arn = f"arn:aws:ssm:us-east-1:123456789012:session/{session}"
        return allows([policy("launcher")], Need(action, arn, {"aws:userid": "AIDAME"}))

    assert may("AIDAME-0123")
    assert not may("AIDAYOU-0123")


# ---- the checks themselves


def test_an_unknown_call_needs_its_action_which_nothing_grants() -> None:
    with on_ec2() as (shell, _):
        unknown = needs(Request("ec2", "CreateImage", {"InstanceId": "i-1"}), view_of(shell.account))
        assert [str(need) for need in unknown] == ["ec2:CreateImage on *"]
        assert not allows([policy("launcher")], unknown[0])


def test_a_call_without_a_grant_fails_whichever_test_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "actions", lambda name: actions(name) - {"ec2:DescribeVolumes"})
    with pytest.raises(AssertionError, match="ec2:DescribeVolumes"), Account.opened() as account:
        Shell(account).type("status")


def test_what_a_test_sets_up_needs_no_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "actions", lambda _name: frozenset())
    with Account.opened() as account:
        account.aws().call("ec2", "CreateKeyPair", {"KeyName": "a-tests-own"})
