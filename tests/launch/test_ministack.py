"""The commands against ministack, an emulator of AWS that nobody here wrote.  It asks for no rights and has no nodes.

Where it differs from AWS's documents: launch/rehearse/README.md, "What a second emulator says differently".
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock
from urllib.request import urlopen

import pytest
from moto.server import ThreadedMotoServer

from launch.aws.client import Aws
from launch.core.templates import fill_yaml
from launch.data.__main__ import main as data
from launch.doctor.__main__ import main as doctor
from launch.ec2.__main__ import main as ec2
from launch.infra.__main__ import main as infra
from launch.infra.template import filled
from tests import needs
from tests.launch.rehearse.ec2.photos import write_images
from tests.warm import free_port

pytestmark = [
    pytest.mark.slow("a second emulator of AWS understands what infra, data, ec2 and doctor ask"),
    needs.ministack(),
]

STARTS_S = 30.0
# Of the stack's, which ministack's CloudFormation refuses as unrecognized.
UNKNOWN = ("AWS::SSM::Document", "AWS::Budgets::Budget", "AWS::EC2::SecurityGroupEgress",
           "AWS::EC2::SecurityGroupIngress")  # fmt: skip
AMI = "ami-0123456789abcdef0"  # one of its own; AWS's deep learning AMIs are not there
BUCKET = "aws-ddp-toolkit-000000000000-us-east-1"
JOB = ("--dataset", "digits", "--model", "cnn", "--nodes", "2", "--instance-type", "c7i.large", "--allow-cpu",
       "--ami", AMI, "--max-hours", "0.5", "--yes")  # fmt: skip


@dataclass
class Second:
    """An account in it.  type: runs a command line in this process, for its exit code and output."""

    aws: Aws
    capsys: pytest.CaptureFixture[str]

    def type(self, main: Callable[..., int], *words: str) -> tuple[int, str]:
        self.capsys.readouterr()
        code = main(list(words))
        return code, "".join(self.capsys.readouterr())

    def living(self) -> list[str]:
        """The ids of all nodes."""
        rows = self.aws.pages("ec2", "DescribeInstances", "Reservations", {})
        nodes = [node for row in rows for node in row["Instances"]]
        return sorted(node["InstanceId"] for node in nodes if node["State"]["Name"] in ("pending", "running"))


@pytest.fixture(scope="module")
def endpoints() -> Iterator[dict[str, str]]:
    """The environment of commands, with a new server; it listens on this machine only, unlike its own program."""
    port, moto = free_port(), ThreadedMotoServer("127.0.0.1", 0)
    words = [needs.MINISTACK, "-m", "hypercorn", "ministack.app:app", "--bind", f"127.0.0.1:{port}"]
    server = subprocess.Popen(words, env={**os.environ, "GATEWAY_PORT": str(port)}, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    moto.start()
    try:
        _until_it_answers(url)
        host, moto_port = moto.get_host_and_port()
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
        # Which it lacks, and of which `down` and `delete` ask what runs.
        sagemaker = {"AWS_ENDPOINT_URL_SAGEMAKER": f"http://{host}:{moto_port}"}
        yield {**keys, "AWS_ENDPOINT_URL": url, **sagemaker}
    finally:
        moto.stop()
        server.terminate()
        server.wait()


def _until_it_answers(url: str) -> None:
    give_up = time.monotonic() + STARTS_S
    while True:
        try:
            return urlopen(f"{url}/_ministack/health", timeout=2).close()
        except OSError:
            assert time.monotonic() < give_up, "ministack does not answer"
            time.sleep(0.2)


@pytest.fixture
def second(
    endpoints: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Second]:
    """An account of its own in which `launch.infra up` has made the stack."""
    for name, value in endpoints.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    urlopen(f"{endpoints['AWS_ENDPOINT_URL']}/_ministack/reset", data=b"", timeout=10).close()
    filled.cache_clear()  # of other tests, with the whole template
    try:
        with mock.patch("launch.infra.template.fill_yaml", without_unknown):
            account = Second(Aws("us-east-1"), capsys)
            code, text = account.type(infra, "up", "--yes")
            assert code == 0, text
            yield account
    finally:
        filled.cache_clear()


def without_unknown(*asked: object) -> str:
    """The filled template without the types that it does not know."""
    text = fill_yaml(*asked)  # type: ignore[arg-type]
    blocks = re.split(r"(?m)^(?=\S|  \w+:$)", text)
    return "".join(block for block in blocks if not any(f"    Type: {kind}\n" in block for kind in UNKNOWN))


def add_route(aws: Aws) -> None:
    """AWS's default VPC has it: https://docs.aws.amazon.com/vpc/latest/userguide/default-vpc-components.html."""
    (vpc,) = aws.call("ec2", "DescribeVpcs")["Vpcs"]
    (table,) = aws.call("ec2", "DescribeRouteTables", {"Filters": [{"Name": "vpc-id", "Values": [vpc["VpcId"]]}]})[
        "RouteTables"
    ]
    (gateway,) = aws.call("ec2", "DescribeInternetGateways")["InternetGateways"]
    route = {"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": gateway["InternetGatewayId"]}
    aws.call("ec2", "CreateRoute", {"RouteTableId": table["RouteTableId"], **route})


def push_image(aws: Aws) -> None:
    """What launch.image leaves, for it has no images of AWS's."""
    part = {"mediaType": "application/vnd.docker.container.image.v1+json", "size": 1, "digest": "sha256:" + "0" * 64}
    kind = "application/vnd.docker.distribution.manifest.v2+json"
    manifest = {"schemaVersion": 2, "mediaType": kind, "config": part, "layers": []}
    image = {"imageManifest": json.dumps(manifest), "imageTag": "latest"}
    aws.call("ecr", "PutImage", {"repositoryName": "aws-ddp-toolkit", **image})


def test_the_stack_is_made_once_and_removed(second: Second) -> None:
    time.sleep(1)  # change sets are named by the second
    code, text = second.type(infra, "up", "--yes")
    assert (code, "no changes" in text) == (0, True), text
    code, text = second.type(infra, "show", "--drift")
    assert (code, "drift: none" in text) == (0, True), text
    second.aws.call("s3", "PutObject", {"Bucket": BUCKET, "Key": "jobs/one/run/model.pt", "Body": b"weights"})
    code, text = second.type(infra, "down", "--yes")
    assert (code, "holds objects and old versions: 1 " in text) == (4, True), text
    code, text = second.type(infra, "down", "--keep-data", "--yes")
    assert code == 0, text
    code, text = second.type(infra, "show")
    assert (code, "there is no stack" in text) == (4, True), text


def test_a_validation_of_cloudformation_has_its_reason(second: Second) -> None:
    """It imports no repositories, and AWS does: so this is the failure that its events point away from."""
    assert second.type(infra, "down", "--keep-data", "--yes")[0] == 0
    code, text = second.type(infra, "up", "--yes")
    assert (code, "failed: Resource of type '" in text, "already exists" in text) == (4, True, True), text


def test_a_job_is_started_once_and_stopped(second: Second) -> None:
    add_route(second.aws)
    push_image(second.aws)
    words = (*JOB, "--job-name", "two", "--detach")
    code, text = second.type(ec2, *words)
    assert code == 0, text
    nodes = second.living()
    assert len(nodes) == 2
    code, text = second.type(ec2, *words)
    assert (code, second.living()) == (0, nodes), text
    for verb in (("status", "two"), ("status",), ("leaks",)):
        code, text = second.type(ec2, *verb)
        assert (code, "two" in text) == (0, True), text
    code, text = second.type(infra, "down", "--yes")
    assert (code, "launch.ec2 stop two" in text) == (4, True), text
    for _ in range(2):
        code, text = second.type(ec2, "stop", "two")
        assert (code, second.living()) == (0, []), text
    assert second.type(ec2, "leaks")[0] == 0
    groups = second.aws.call("ec2", "DescribeSecurityGroups")["SecurityGroups"]
    assert [group["GroupName"] for group in groups if "two" in group["GroupName"]] == []
    assert second.aws.call("ec2", "DescribePlacementGroups")["PlacementGroups"] == []
    assert second.aws.call("scheduler", "ListSchedules", {"GroupName": "aws-ddp-toolkit"})["Schedules"] == []


def test_data_in_s3_are_published_listed_and_deleted(second: Second, tmp_path: Path) -> None:
    """It has no API for the blocks of snapshots."""
    source = str(write_images(tmp_path / "photos"))
    code, text = second.type(data, "publish", source, "--name", "photos", "--to", "s3")
    assert code == 0, text
    code, text = second.type(data, "list")
    assert (code, "photos" in text) == (0, True), text
    code, text = second.type(data, "delete", "photos", "--yes")
    assert code == 0, text
    assert "Contents" not in second.aws.call("s3", "ListObjectsV2", {"Bucket": BUCKET, "Prefix": "data/"})


# What launch.doctor finds beside ok, and why: each is in the list of launch/rehearse/README.md, or was never made.
FOUND = {
    "credentials": "warning",  # everybody is the root user
    "node's permissions": "missing",  # the simulator takes no context
    "time limits' role": "warning",  # the same
    "quota": "unknown",
    "image": "unknown",  # its layers' addresses name a host that is not there
    "public access": "unknown",  # an action that it lacks, as the next two
    "offered": "unknown",
    "volumes' key": "unknown",
    "dry run": "unknown",
    "time limits": "unknown",
    "schedule group": "warning",  # the first job makes it
    "budget": "warning",
}


def test_doctor_finds_what_is_there(second: Second) -> None:
    add_route(second.aws)
    push_image(second.aws)
    code, text = second.type(doctor, *JOB, "--json")
    found = {row["check"]: row["state"] for row in json.loads(text)["findings"]}
    assert (code, {name: state for name, state in found.items() if state != "ok"}) == (4, FOUND)
