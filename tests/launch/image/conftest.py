"""A machine with docker, and an account."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from moto import mock_aws

from launch.core import cli, clock
from launch.core.aws import Aws
from launch.core.clock import Clock
from tests.launch.faults import listen, watched
from tests.launch.image.builds import Builds, mended
from tests.launch.image.machine import REPOSITORY, Machine, put
from tests.launch.privilege.watch import granted


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Machine]:
    """With docker, and an account with an empty repository."""
    folder = tmp_path / "bin"
    folder.mkdir()
    made = Machine(folder, tmp_path / "log", capture=capsys)
    made.has("docker")
    monkeypatch.setenv("PATH", str(folder))

    def say(line: str) -> None:
        print(line)
        if line.startswith("$ docker push"):
            target = "sagemaker" if any("--target sagemaker" in line for line in made.ran) else "trainer"
            put(target, f"pushed {len(made.ran)}")

    monkeypatch.setattr(cli, "say", say)
    monkeypatch.setattr(clock, "Clock", lambda: Clock(sleep=made.wait))
    listen()
    with mock_aws(), watched(lambda call, _: made.requests.append(call)), granted():
        Aws("us-east-1").call("ecr", "CreateRepository", {"repositoryName": REPOSITORY})
        made.requests.clear()
        yield made


@pytest.fixture
def builds(machine: Machine) -> Iterator[Builds]:
    """The account's CodeBuild; nothing builds on the machine itself."""
    machine.has()
    with mended() as made:
        made.set_up()
        machine.requests.clear()
        yield made
