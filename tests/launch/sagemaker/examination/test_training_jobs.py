"""launch.doctor --for sagemaker: one thing after the other is taken away from an account, and named."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import boto3
import pytest
from moto.iam.models import iam_backends

from launch.aws.client import Aws
from launch.aws.examination.permissions import Refusal
from launch.doctor.__main__ import main
from launch.doctor.commands import Runtime
from launch.rehearse.aws.batch.moto_patches import make_queue
from launch.rehearse.aws.iam.policies import policy
from launch.sagemaker.examination import checks
from tests.launch.aws.examination.rights import ungranted
from tests.launch.sagemaker.account import SageMakerAccount

ROLE = "aws-ddp-toolkit-sagemaker"


class Ward:
    """An account in which nothing is missing for a training job, with a VPC of its own and data.

    words: of the command line, beside those of the VPC.
    """

    def __init__(self, account: SageMakerAccount) -> None:
        self.account, self.ec2 = account, boto3.client("ec2", account.region)
        self.iam = iam_backends[account.id]["aws"]
        self.iam.create_user("us-east-1", "moto")
        self.iam.put_user_policy("moto", "launcher", json.dumps(policy("launcher")))
        self.iam.put_role_policy(ROLE, "sagemaker", json.dumps(policy("sagemaker")))
        self.data = account.write("data/digits/train/0.png", b"x").removesuffix("/train/0.png")
        self.vpc, self.subnet = self.network("10.1.0.0/16")
        self.group = self.new_group(self.vpc)
        self.allow(self.group)
        self.gateway(self.vpc, self.subnet)
        self.words = ["--instance-type", "ml.g5.12xlarge", "--nodes", "2", "--dataset", "imagefolder"]

    def network(self, cidr: str) -> tuple[str, str]:
        """A VPC and its only subnet."""
        vpc = self.ec2.create_vpc(CidrBlock=cidr)["Vpc"]["VpcId"]
        return vpc, self.ec2.create_subnet(VpcId=vpc, CidrBlock=cidr)["Subnet"]["SubnetId"]

    def gateway(self, vpc: str, subnet: str) -> None:
        """A NAT gateway, and the main route to it."""
        address = self.ec2.allocate_address(Domain="vpc")["AllocationId"]
        gateway = self.ec2.create_nat_gateway(SubnetId=subnet, AllocationId=address)["NatGateway"]["NatGatewayId"]
        route = {"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": gateway}
        self.ec2.create_route(RouteTableId=self.routes(vpc), **route)

    def routes(self, vpc: str) -> str:
        """The main route table."""
        (table,) = self.ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"]
        return str(table["RouteTableId"])

    def endpoint(self, *tables: str) -> None:
        """An endpoint for S3 in these route tables."""
        service = {"VpcId": self.vpc, "ServiceName": "com.amazonaws.us-east-1.s3"}
        self.ec2.create_vpc_endpoint(**service, VpcEndpointType="Gateway", RouteTableIds=[*tables])

    def new_group(self, vpc: str) -> str:
        made: str = self.ec2.create_security_group(GroupName=f"group-{uuid4()}", Description="-", VpcId=vpc)["GroupId"]
        return made

    def allow(self, group: str) -> None:
        rule: Any = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
        self.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[rule])
        self.ec2.authorize_security_group_egress(GroupId=group, IpPermissions=[rule])

    def examine(self) -> tuple[int, list[dict[str, str]]]:
        """The exit code, and the findings."""
        said = list[str]()
        runtime = Runtime(lambda region: Aws(region or self.account.region, policy="doctor"), say=said.append)
        own = ["--subnet", self.subnet, "--security-group", self.group, "--data", self.data]
        code = main(["--for=sagemaker", "--json", *self.words, *own], runtime)
        return code, json.loads(said[0])["findings"]


@pytest.fixture
def ward() -> Iterator[Ward]:
    with SageMakerAccount.opened() as account:
        yield Ward(account)


def test_an_account_that_has_everything_lacks_nothing(ward: Ward) -> None:
    code, found = ward.examine()

    assert [row for row in found if row["state"] == "missing"] == []
    assert code == 0
    checked = {row["check"] for row in found if row["state"] == "ok"}
    assert checked >= {"bucket", "job role", "job's permissions", "quota", "image", "VPC", "data channels"}


def no_efa(ward: Ward) -> None:
    rule: Any = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": ward.group}]}
    ward.ec2.revoke_security_group_egress(GroupId=ward.group, IpPermissions=[rule])


def no_trust(ward: Ward) -> None:
    ward.iam.update_assume_role_policy(ROLE, json.dumps(policy("node-trust")))


def endpoint_elsewhere(ward: Ward) -> None:
    no_endpoint(ward)
    ward.endpoint()


def only_s3(ward: Ward) -> None:
    no_endpoint(ward)
    ward.endpoint(ward.routes(ward.vpc))


def no_endpoint(ward: Ward) -> None:
    ward.vpc, ward.subnet = ward.network("10.2.0.0/16")
    ward.group = ward.new_group(ward.vpc)
    ward.allow(ward.group)


def into_queue(ward: Ward, most: int, name: str = "demo") -> None:
    make_queue(ward.account.rules, f"aws-ddp-toolkit-{name}", most, ward.account.region, ward.account.id)
    ward.words += ["--queue", "demo"]


def no_submitter(ward: Ward) -> None:
    into_queue(ward, 2)
    rights = {
        "Version": "2012-10-17",
        "Statement": [one for one in policy("launcher")["Statement"] if one.get("Sid") != "SubmitOwnJobs"],
    }
    ward.iam.put_user_policy("moto", "launcher", json.dumps(rights))


def test_a_queue_is_examined(ward: Ward) -> None:
    into_queue(ward, 2)
    code, found = ward.examine()

    assert code == 0
    assert [row["state"] for row in found if row["check"] == "queue"] == ["ok", "ok"]


HARMS: list[tuple[str, Callable[[Ward], object], str, str]] = [
    ("type", lambda ward: ward.account.quota.update({"ml.g5.12xlarge for training job usage": 0}),
     "quota", "and the quota is 0"),
    ("all instances", lambda ward: ward.account.quota.update({"Number of instances across all training jobs": 1}),
     "quota", "Number of instances across all training jobs: 2 for the job, 0 in use, and the quota is 1"),
    ("longest run", lambda ward: ward.account.quota.update({"Longest run time for a training job": 3600}),
     "quota", "Longest run time for a training job: 43,200 s for the job, and the quota is 3,600 s"),
    ("no queue", lambda ward: into_queue(ward, 2, "other"), "queue", "no queue 'demo' in us-east-1"),
    ("small queue", lambda ward: into_queue(ward, 1), "queue", "demo has 1 instances, and the job needs 2"),
    ("may not submit", no_submitter, "queue", "moto may not batch:SubmitServiceJob"),
    ("trust", no_trust, "job role", f"role {ROLE} may not be assumed by sagemaker.amazonaws.com"),
    ("rights", lambda ward: ward.iam.delete_role_policy(ROLE, "sagemaker"),
     "job's permissions", f"{ROLE} may not s3:GetObject, s3:PutObject, logs:"),
    ("image", lambda ward: ward.words.extend(
        ["--image", "123456789012.dkr.ecr.us-east-1.amazonaws.com/aws-ddp-toolkit:sagemaker"]),
     "image", "aws-ddp-toolkit"),
    ("subnet", lambda ward: setattr(ward, "subnet", "subnet-0123456789abcdef0"), "VPC", "subnet-0123456789abcdef0"),
    ("group elsewhere", lambda ward: setattr(ward, "group", ward.new_group(ward.network("10.3.0.0/16")[0])),
     "VPC", "is not in vpc-"),
    ("closed group", lambda ward: setattr(ward, "group", ward.new_group(ward.vpc)),
     "VPC", "no security group lets 2 instances talk to each other"),
    # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start.html
    ("no EFA", no_efa, "VPC", "no security group lets all traffic out to itself, which EFA requires"),
    ("connectivity", no_endpoint, "VPC", "neither a NAT gateway nor an endpoint for S3"),
    # https://docs.aws.amazon.com/vpc/latest/privatelink/gateway-endpoints.html
    ("endpoint elsewhere", endpoint_elsewhere, "VPC", "neither a NAT gateway nor an endpoint for S3"),
    # https://docs.aws.amazon.com/sagemaker/latest/dg/train-vpc.html
    ("no index", only_s3, "VPC", "no NAT gateway, and pip must install nvidia-ml-py==13.615.71, "),
    ("data", lambda ward: setattr(ward, "data", ward.data + "-of-nobody"), "data channels", "there is nothing under s3://"),
    ("data's bucket", lambda ward: setattr(ward, "data", "s3://none-such/x"), "data channels", "no bucket none-such"),
]  # fmt: skip


@pytest.mark.parametrize(("harm", "check", "text"), [row[1:] for row in HARMS], ids=[row[0] for row in HARMS])
def test_what_a_training_job_lacks_is_named(ward: Ward, harm: Callable[[Ward], object], check: str, text: str) -> None:
    harm(ward)

    code, found = ward.examine()

    missing = [row for row in found if row["state"] == "missing"]
    assert code == 4, found
    assert [row["check"] for row in missing] == [check]
    assert text in missing[0]["text"]
    assert missing[0]["remedy"]


def test_an_image_that_has_everything_needs_no_index(ward: Ward) -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/dg/train-vpc.html: without internet access."""
    only_s3(ward)
    ward.words += ["--image", "123456789012.dkr.ecr.us-east-1.amazonaws.com/aws-ddp-toolkit:sagemaker"]

    _, found = ward.examine()

    said = [row["text"] for row in found if row["check"] == "VPC" and row["state"] == "ok"]
    assert any("so the image must contain" in text for text in said), found


def test_a_right_that_the_simulation_cannot_judge_names_what_can(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    """SageMaker has no dry run: only a launch shows whether it may, and only a job what its role may do."""
    doubt = [Refusal("s3:GetObject", "policies test aws:SourceVpce, which the simulation does not know")]
    monkeypatch.setattr("launch.aws.examination.permissions.refusals", lambda *_: doubt)

    _, found = ward.examine()

    unknown = {row["check"]: row["remedy"] for row in found if row["state"] == "unknown"}
    assert "SageMaker refuses it, before anything is billed" in unknown["permissions"]
    assert unknown["job's permissions"] == "run a short job: only that can tell"


def test_what_is_simulated_is_what_the_policies_grant() -> None:
    """So the tables of rights and infra/iam say the same."""
    assert ungranted("launcher", checks.LAUNCHER) == []
    assert ungranted("sagemaker", checks.TRAINING_JOB) == []
