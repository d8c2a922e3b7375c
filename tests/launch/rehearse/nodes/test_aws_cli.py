"""Nodes that cannot run the AWS CLI would boot in silence: they are refused as they would be made."""

import sys
import venv
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from launch.core.errors import NotSetUp
from launch.rehearse.nodes.ec2 import namespaces, processes
from launch.rehearse.nodes.ec2.node import Machines
from tests.launch.rehearse.ec2.conftest import needs_namespaces

Network = Callable[[Path], AbstractContextManager[Machines]]


def in_namespaces(folder: Path) -> AbstractContextManager[Machines]:
    return namespaces.network(folder, "172.31.255.254/16")


@pytest.fixture(params=[pytest.param(in_namespaces, marks=needs_namespaces), processes.processes])
def network(request: pytest.FixtureRequest) -> Network:
    made: Network = request.param
    return made


def test_a_python_whose_nodes_could_not_run_the_aws_cli_is_refused(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'No module named awscli' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))  # which nodes see

    with (
        network(tmp_path / "nodes") as machines,
        pytest.raises(NotSetUp, match=r"No module named awscli\); run pip install .*\[rehearse\]"),
    ):
        machines.check_aws_cli()


def test_a_program_that_is_found_only_by_the_users_environment_does_not_count(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "awscli").mkdir()
    (tmp_path / "awscli/__main__.py").write_text("raise SystemExit(1)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with network(tmp_path / "nodes") as machines:
        machines.check_aws_cli()


@needs_namespaces
def test_a_package_in_a_folder_that_nodes_do_not_see_is_missed_before_one_boots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that a .pth file names, or the user's own site: this machine's Python finds it."""
    venv.create(tmp_path / "venv", symlinks=True)
    (tmp_path / "packages/awscli").mkdir(parents=True)
    (tmp_path / "packages/awscli/__main__.py").touch()
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "more.pth").write_text(f"{tmp_path}/packages\n")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv/bin/python"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))

    with processes.processes(tmp_path / "on-this-machine") as machines:
        machines.check_aws_cli()
    with in_namespaces(tmp_path / "nodes") as machines, pytest.raises(NotSetUp, match="No module named awscli"):
        machines.check_aws_cli()
