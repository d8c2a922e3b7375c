"""launch.doctor on accounts that lack one thing each of what a job on EC2 needs; it is named, with what mends it."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from moto.iam.models import iam_backends

from launch.aws.client import Aws
from launch.ec2.examination import account, machines
from launch.rehearse.aws.iam.policies import policy
from tests.launch.aws.examination.rights import ungranted
from tests.launch.doctor.account import EXT4, Patient, only
from tests.launch.doctor.broken import Broken, assert_named, delete
from tests.launch.faults import Faults, injected, refused
from tests.launch.privilege.commands import leave_leaks

# ---- broken accounts


FOREIGN_KEY = "arn:aws:kms:us-east-1:999999999999:key/11111111-2222-3333-4444-555555555555"
LAMBDA = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}


@pytest.fixture
def patient() -> Iterator[Patient]:
    with Patient.opened() as opened:
        yield opened


def no_route(patient: Patient) -> None:
    (table,) = patient.account.ec2.describe_route_tables()
    patient.account.ec2.delete_route(table.id, "0.0.0.0/0")


def block_public_access(patient: Patient, *, with_exclusion: bool = False) -> None:
    """https://docs.aws.amazon.com/vpc/latest/userguide/security-vpc-bpa.html"""
    rules, vpc = patient.account.rules, patient.account.ec2.get_default_vpc().id
    rules.public_access = "block-ingress"
    rules.excluded = [f"arn:aws:ec2:us-east-1:{patient.account.id}:vpc/{vpc}"] if with_exclusion else []


def no_addresses(patient: Patient) -> None:
    for subnet in patient.account.subnets.values():
        patient.account.ec2.modify_subnet_attribute(subnet, "map_public_ip_on_launch", "false")


def shut_acl(patient: Patient) -> None:
    """A custom one, which denies everything: https://docs.aws.amazon.com/vpc/latest/userguide/custom-network-acl.html"""
    aws, vpc = Aws("us-east-1"), patient.account.ec2.get_default_vpc().id
    acls = aws.call("ec2", "DescribeNetworkAcls", {"Filters": [{"Name": "vpc-id", "Values": [vpc]}]})["NetworkAcls"]
    own = aws.call("ec2", "CreateNetworkAcl", {"VpcId": vpc})["NetworkAcl"]["NetworkAclId"]
    for tie in [tie for acl in acls for tie in acl["Associations"]]:
        named = {"AssociationId": tie["NetworkAclAssociationId"], "NetworkAclId": own}
        aws.call("ec2", "ReplaceNetworkAclAssociation", named)


def no_dns(patient: Patient) -> None:
    vpc = patient.account.ec2.get_default_vpc().id
    Aws("us-east-1").call("ec2", "ModifyVpcAttribute", {"VpcId": vpc, "EnableDnsSupport": {"Value": False}})


def wrong_trust(role: str) -> Callable[[Patient], None]:
    def harm(patient: Patient) -> None:
        trust = json.dumps({"Version": "2012-10-17", "Statement": LAMBDA})
        iam_backends[patient.account.id]["aws"].update_assume_role_policy(role, trust)

    return harm


def trust_as_in_the_file(patient: Patient) -> None:
    """With the placeholder that only launch.infra fills in: AWS takes it, and nobody may ever assume the role."""
    trust = json.dumps(policy("scheduler-trust"))
    iam_backends[patient.account.id]["aws"].update_assume_role_policy("aws-ddp-toolkit-scheduler", trust)


def no_rights(role: str) -> Callable[[Patient], None]:
    return lambda patient: iam_backends[patient.account.id]["aws"].get_role(role).policies.clear()


def changed_by_hand(patient: Patient) -> None:
    """The node's policy without the rights for logs, and with another."""
    document = policy("node")
    statements = [one for one in document["Statement"] if "logs:PutLogEvents" not in one["Action"]]
    statements.append({"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "*"})
    text = json.dumps({**document, "Statement": statements})
    iam_backends[patient.account.id]["aws"].put_role_policy("aws-ddp-toolkit-node", "node", text)


def earlier_scheduler(patient: Patient) -> None:
    """What its role might do until time limits started the sweeper."""
    tagged = {"Null": {"aws:ResourceTag/aws-ddp-toolkit:job": "false"}}
    ends = {"Effect": "Allow", "Action": "ec2:TerminateInstances", "Resource": "*", "Condition": tagged}
    text = json.dumps({"Version": "2012-10-17", "Statement": [ends]})
    iam_backends[patient.account.id]["aws"].put_role_policy("aws-ddp-toolkit-scheduler", "scheduler", text)


def earlier_sweeper(patient: Patient) -> None:
    step = {"name": "sweep", "action": "aws:executeScript", "inputs": {"Runtime": "python3.11", "Handler": "sweep"}}
    patient.put_sweeper({"schemaVersion": "0.3", "description": "", "mainSteps": [step]})


def no_quota(patient: Patient) -> None:
    patient.account.quota["L-DB2E81BA"] = 8.0


def own_key(patient: Patient) -> None:
    made = Aws("us-east-1").call("kms", "CreateKey", {})
    patient.account.rules.default_key = made["KeyMetadata"]["Arn"]


def no_snapshot(patient: Patient) -> None:
    patient.account.ec2.delete_snapshot(patient.account.snapshot)


def set_config(**values: Any) -> Callable[[Patient], None]:
    return lambda patient: setattr(patient, "config", {**patient.config, **values})


def foreign_key(patient: Patient) -> None:
    patient.account.rules.default_key = FOREIGN_KEY


BROKEN = (
    Broken("no route", "connectivity", "missing", "has no route to the internet", "--endpoint-subnets", no_route),
    Broken("internet gateways blocked", "public access", "missing", "VPC Block Public Access is block-ingress",
           "--internet-gateway-exclusion-mode allow-bidirectional", block_public_access),
    Broken("blocked, and the VPC excluded", "public access", "ok", "the job's subnets are excluded", "",
           lambda patient: block_public_access(patient, with_exclusion=True)),
    Broken("a network ACL without rules", "connectivity", "missing", "lets no HTTPS out", "create-network-acl-entry",
           shut_acl),
    Broken("no DNS", "connectivity", "missing", "has DNS support off", "--enable-dns-support", no_dns),
    Broken("no addresses", "connectivity", "missing", "gives them no public address", "aws ec2 modify-subnet-attribute",
           no_addresses),
    Broken("no quota", "quota", "missing", "16 vCPUs for 2 x g5.2xlarge, 0 in use, and the quota is 8",
           "request-service-quota-increase --service-code ec2 --quota-code L-DB2E81BA --desired-value 16", no_quota),
    Broken("wrong trust of nodes", "node role", "missing", "may not be assumed by ec2.amazonaws.com",
           "aws iam update-assume-role-policy --role-name aws-ddp-toolkit-node", wrong_trust("aws-ddp-toolkit-node")),
    Broken("wrong trust of time limits", "scheduler role", "missing",
           "may not be assumed by scheduler.amazonaws.com and ssm.amazonaws.com",
           '"aws:SourceAccount": "123456789012"', wrong_trust("aws-ddp-toolkit-scheduler")),
    Broken("trust that names no account", "scheduler role", "missing", "may not be assumed by scheduler.amazonaws.com",
           "--policy-document '{", trust_as_in_the_file),
    Broken("spot, and volumes with an own key", "volumes' key", "warning", "AWSServiceRoleForEC2Spot has no grant",
           "aws kms create-grant --region us-east-1 --key-id arn:aws:kms:", own_key, words=("--spot",)),
    Broken("foreign key", "volumes' key", "missing", "belongs to account 999999999999", "infra/account.md",
           foreign_key),
    Broken("own key", "volumes' key", "warning", "may not kms:CreateGrant", "infra/account.md", own_key),
    Broken("image for ARM", "image", "missing", "is for linux/arm64", "--builder codebuild",
           set_config(architecture="arm64")),
    Broken("CUDA too old for the GPU", "image", "missing", "CUDA 11.0 has no kernels for A10G (sm_86)",
           "BASE_IMAGE", set_config(config={"Env": ["CUDA_VERSION=11.0.3"]})),
    Broken("no image", "image", "missing", "nothing", "python -m launch.image push", words=("--image", "nothing")),
    Broken("no snapshot", "snapshot", "missing", "is tagged aws-ddp-toolkit:dataset=imagenet", "infra/data.md",
           no_snapshot),
    Broken("empty snapshot", "file system", "missing", "does not begin with a file system",
           "infra/data.md", lambda patient: patient.put_block(bytes(2048))),
    Broken("no schedule group", "schedule group", "warning", "no group aws-ddp-toolkit",
           "aws scheduler create-schedule-group --name aws-ddp-toolkit",
           delete("scheduler", "DeleteScheduleGroup", Name="aws-ddp-toolkit")),
    Broken("time limits of an earlier version's stack", "time limits' role", "warning",
           "aws-ddp-toolkit-scheduler may not ssm:StartAutomationExecution, iam:PassRole, so time limits have no",
           "python -m launch.infra up --region us-east-1", earlier_scheduler),
    Broken("a sweeper of an earlier version's stack", "time limits", "warning", "does not know GraceMinutes",
           "python -m launch.infra up --region us-east-1", earlier_sweeper),
    Broken("no document for time limits", "time limits", "warning", "no document ddp-toolkit-sweeper",
           "python -m launch.infra up", delete("ssm", "DeleteDocument", Name="ddp-toolkit-sweeper")),
    Broken("no sweeper", "sweeper", "warning", "nothing ends a node", "python -m launch.infra up",
           delete("scheduler", "DeleteSchedule", Name="aws-ddp-toolkit-sweeper")),
    Broken("nodes that may do nothing", "node's permissions", "missing", "may not ecr:GetAuthorizationToken",
           "file://infra/iam/node.json", no_rights("aws-ddp-toolkit-node")),
    Broken("a node's policy changed by hand", "node's permissions", "missing", "its policy node was changed: it lacks "
           "logs:CreateLogStream, logs:PutLogEvents and adds sqs:SendMessage", "python -m launch.infra up",
           changed_by_hand),
    Broken("never used spot", "spot role", "missing", "has never used spot capacity",
           "create-service-linked-role --aws-service-name spot.amazonaws.com", words=("--spot",)),
    Broken("not offered here", "offered", "missing", "p4d.24xlarge is not offered in", "another --instance-type",
           words=("--instance-type", "p4d.24xlarge", "--region", "us-west-1")),
    Broken("no such subnet", "subnets", "missing", "does not exist", "create-default-vpc",
           words=("--subnet", "subnet-0123456789abcdef0")),
    Broken("no such AMI", "AMI", "missing", "does not exist", "another --ami",
           words=("--ami", "ami-0123456789abcdef0")),
    Broken("leaks", "leftovers", "warning", "1 job left resources (old)", "launch.ec2 leaks --delete",
           lambda patient: leave_leaks(patient.account)),
)  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.what)
def test_what_an_account_lacks_is_named_with_its_remedy(patient: Patient, broken: Broken) -> None:
    assert_named(patient, broken)


def test_a_grant_for_spot_on_the_key_is_all_that_is_asked_for(patient: Patient) -> None:
    own_key(patient)
    role = "arn:aws:iam::123456789012:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
    kms = Aws("us-east-1")
    key = patient.account.rules.default_key
    kms.call("kms", "CreateGrant", {"KeyId": key, "GranteePrincipal": role, "Operations": ["Decrypt"]})
    with only("volumes' key"):
        assert "grant" not in patient.examine("--spot")["volumes' key"]["text"]


def test_a_denied_dry_run_names_the_operation(patient: Patient) -> None:
    words = "You are not authorized to perform this operation. User: u is not authorized to perform: ec2:RunInstances"
    with injected(Faults().on("RunInstances", refused("UnauthorizedOperation", 403, words))), only("dry run"):
        found = patient.examine("--security-group", "sg-0123456789abcdef0", code=4)["dry run"]

    assert found["state"] == "missing"
    assert "EC2 refuses RunInstances: these credentials may not ec2:RunInstances" in found["text"]


def test_a_dry_run_that_stumbles_over_the_default_group_proves_nothing(patient: Patient) -> None:
    """The launcher's policy allows groups with the job's tag, and the launch makes one; see dry_run.py."""
    words = "on resource: arn:aws:ec2:us-east-1:123456789012:security-group/sg-1 because no identity-based policy"
    with injected(Faults().on("RunInstances", refused("UnauthorizedOperation", 403, words))), only("dry run"):
        found = patient.examine()["dry run"]

    assert found["state"] == "unknown"


def test_what_needs_a_thing_that_is_missing_is_not_examined(patient: Patient) -> None:
    no_snapshot(patient)
    found = patient.examine(code=4)

    assert (found["snapshot"]["state"], found["file system"]["state"]) == ("missing", "unknown")
    assert found["file system"]["text"] == "not examined: it needs the snapshot"
    assert found["dry run"]["state"] == "unknown"


# ---- parts


def test_what_is_simulated_is_what_the_policies_grant() -> None:
    """So the tables of rights and infra/iam say the same."""
    assert ungranted("launcher", account.LAUNCHER) == []
    assert ungranted("node", account.NODE) == []
    assert ungranted("scheduler", account.RIGHTS) == []


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        (EXT4, "ext4"),
        (b"XFSB" + bytes(2000), "xfs"),
        (bytes(510) + b"\x55\xaaEFI PART" + bytes(1000), "gpt"),
        (bytes(510) + b"\x55\xaa" + bytes(1000), "mbr"),
        (bytes(2000), ""),
        (b"", ""),
    ],
)
def test_a_file_system_is_known_by_its_magic_number(block: bytes, kind: str) -> None:
    assert machines.kind_of(block) == kind
