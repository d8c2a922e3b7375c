"""The commands of infra/README.md, typed as they stand: after them a launch finds nothing to complain of."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from launch.aws import Aws
from launch.ec2 import lookup
from launch.lookup import check_bucket
from launch.sagemaker import lookup as sagemaker_lookup
from tests.conftest import ROOT


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An AWS with nothing in it but AWS's own policies, at an address of its own."""
    monkeypatch.setenv("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def commands() -> str:
    """The first block of the page."""
    (block,) = re.findall(r"## Set the account up.*?```bash\n(.*?)```", (ROOT / "infra/README.md").read_text(), re.S)
    return str(block)


def test_the_commands_set_up_what_a_launch_looks_for(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws_command = tmp_path / "aws"
    aws_command.write_text(f'#!/bin/sh\nexec {sys.executable} -m awscli "$@"\n')
    aws_command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    script = "set -euo pipefail\n" + commands()
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr

    aws = Aws("us-east-1")
    check_bucket(aws, "aws-ddp-toolkit-123456789012-us-east-1")
    lookup._check_profile(aws, "aws-ddp-toolkit-node")
    assert lookup._role(aws, "aws-ddp-toolkit-scheduler").endswith(":role/aws-ddp-toolkit-scheduler")
    role = sagemaker_lookup._arn_of(aws, sagemaker_lookup.ROLE)
    assert role.endswith(":role/aws-ddp-toolkit-sagemaker")
    assert aws.call("iam", "GetRole", {"RoleName": sagemaker_lookup.ROLE})["Role"]["AssumeRolePolicyDocument"] == (
        json.loads((ROOT / "infra/iam/sagemaker-trust.json").read_text())
    )
    policy = {"RoleName": sagemaker_lookup.ROLE, "PolicyName": "sagemaker"}
    assert aws.call("iam", "GetRolePolicy", policy)["PolicyDocument"]["Statement"]
    assert aws.pages("ecr", "DescribeRepositories", "repositories")[0]["repositoryName"] == "aws-ddp-toolkit"
