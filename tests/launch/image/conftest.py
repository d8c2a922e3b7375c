"""A machine with docker, and an account."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from moto import mock_aws

from launch.aws.client import Aws
from tests.launch.faults import listen, watched
from tests.launch.image.builds import Builds, patched
from tests.launch.image.machine import REPOSITORY, Machine
from tests.launch.privilege.watch import granted


@pytest.fixture
def machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Machine]:
    """With docker, and an account with an empty repository."""
    folder = tmp_path / "bin"
    folder.mkdir()
    machine = Machine(folder, tmp_path / "log", capsys)
    machine.has("docker")
    listen()
    with mock_aws(), watched(lambda call, _: machine.requests.append(call)), granted():
        Aws("us-east-1").call("ecr", "CreateRepository", {"repositoryName": REPOSITORY})
        machine.requests.clear()
        yield machine


@pytest.fixture
def builds(machine: Machine) -> Iterator[Builds]:
    """The account's CodeBuild; the machine has no builder."""
    machine.has()
    with patched() as builds:
        builds.set_up()
        machine.requests.clear()
        yield builds
