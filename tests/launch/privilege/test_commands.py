"""Least privilege of launchers: a user with infra/iam/launcher.json only runs every documented command, on a moto that
evaluates policies for every call, and cannot do anything that the policy is not meant to allow.
"""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from launch.aws.client import Aws
from launch.aws.refusals import DENIED
from launch.core.errors import AwsError
from launch.rehearse.aws.batch.jobs import ServiceJob
from launch.rehearse.aws.batch.moto_patches import make_queue
from launch.rehearse.aws.iam.policies import actions
from tests.launch.privilege.commands import (
    Shell,
    every_command_on_ec2,
    every_command_on_sagemaker,
    on_ec2,
    on_sagemaker,
)
from tests.launch.privilege.documented import documented, uses
from tests.launch.privilege.enforced import Watch, idle

# Grants that no call of the launcher needs, and why they are there.
ARGUED = {
    "ec2:DescribeInstanceTypes": "a type that the catalog lacks",
    "ec2:DescribeDhcpOptions": "where a VPC has DNS servers of its own",
    "ssm:StartSession": "`ssh` and `forward` run the command that needs it: aws ssm start-session",
    "ssm:ResumeSession": "that command's plugin, when the connection breaks",
    "ssm:TerminateSession": "that command's plugin, at Ctrl-C",
    "ssmmessages:OpenDataChannel": "that command's plugin, to talk to the node at all; "
    "https://docs.aws.amazon.com/systems-manager/latest/userguide/getting-started-restrict-access-quickstart.html",
    # of launch.doctor and of a launcher that has failed; tests/launch/privilege/test_queue.py asks for them.
    **dict.fromkeys(
        (
            "batch:DescribeJobDefinitions",
            "batch:DescribeJobs",
            "batch:ListConsumableResources",
        ),
        "launch.ec2 --queue",
    ),
}
TAGGED = [{"Key": "aws-ddp-toolkit:job", "Value": "j"}]
SOMEBODYS = [{"Key": "Name", "Value": "database"}]


def all_commands() -> tuple[Watch, Watch]:
    """The calls of both launchers; fails where a command does."""
    with on_ec2() as (shell, ec2):
        ec2.typed = every_command_on_ec2(shell)
    with on_sagemaker(instance_type="ml.g5.12xlarge") as (stage, sagemaker):
        sagemaker.typed = every_command_on_sagemaker(stage)
    return ec2, sagemaker


@pytest.mark.timeout(180)
def test_every_documented_command_works_with_the_launchers_policy_alone_and_needs_all_of_it() -> None:
    """One test, as running all commands takes long."""
    both = all_commands()
    for module, seen in zip(("launch.ec2", "launch.sagemaker"), both, strict=True):
        assert seen.refused == []
        assert len(seen.calls) > 50
        shown = documented(module)
        assert shown - uses(seen.typed) == set()
        assert len(shown) > 20
    granted = [need for seen in both for need in seen.granted]
    assert actions("launcher") - {need.action for need in granted} == ARGUED.keys()
    # Actions are needed somewhere; so is each statement that grants them.
    assert idle("launcher", granted) == {
        "Shell", "ShellDocument", "OwnShells",
    }  # fmt: skip


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


def test_a_job_goes_into_the_toolkits_queues_only_and_ends_only_the_toolkits() -> None:
    with on_sagemaker(instance_type="ml.g5.2xlarge", queue="demo") as (stage, _):
        aws, batch = Aws("us-east-1"), stage.account.rules.batch
        for name in ("aws-ddp-toolkit-demo", "production"):
            make_queue(stage.account.rules, name, 1, stage.account.region, stage.account.id)
        asked = dict(stage.plan().steps[-1].params)  # type: ignore[union-attr]
        assert refused(lambda: aws.call("batch", "SubmitServiceJob", {**asked, "jobQueue": "production"})) == (
            "batch:SubmitServiceJob"
        )
        untagged = {**asked, "tags": {"Name": "database"}}
        assert refused(lambda: aws.call("batch", "SubmitServiceJob", untagged)) == "batch:SubmitServiceJob"
        as_admin = {**json.loads(asked["serviceRequestPayload"]), "RoleArn": "arn:aws:iam::123456789012:role/admin"}
        privileged = {**asked, "serviceRequestPayload": json.dumps(as_admin)}
        assert refused(lambda: aws.call("batch", "SubmitServiceJob", privileged)) == "iam:PassRole"
        batch.jobs["1"] = ServiceJob("1", "arn", next(iter(batch.queues.values())), untagged, datetime.now(UTC))
        assert refused(lambda: aws.call("batch", "TerminateServiceJob", {"jobId": "1", "reason": "-"})) == (
            "batch:TerminateServiceJob"
        )


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
