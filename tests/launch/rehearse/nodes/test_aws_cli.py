"""AWS's command line on nodes: a node that could not run it is refused, and one reads it once for all its commands."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from launch.core.errors import NotSetUp
from launch.rehearse.nodes.ec2 import namespaces, processes
from launch.rehearse.nodes.ec2.node import HERE, Machines
from tests.launch.rehearse.ec2.conftest import needs_namespaces

# ---- whether a node can run it


Network = Callable[[Path], AbstractContextManager[Machines]]


def in_namespaces(folder: Path) -> AbstractContextManager[Machines]:
    return namespaces.node_network(folder, "172.31.255.254/16")


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


def test_an_aws_cli_in_the_users_pythonpath_is_ignored(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "awscli").mkdir()
    (tmp_path / "awscli/__main__.py").write_text("raise SystemExit(1)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with network(tmp_path / "nodes") as machines:
        machines.check_aws_cli()


@needs_namespaces
def test_an_aws_cli_in_a_folder_that_nodes_do_not_see_is_refused(
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


# ---- read once


SCRIPT = str(HERE / "aws_cli.py")


@pytest.fixture(scope="module")
def there() -> Iterator[str]:
    """The socket of a running server.  Its path must be short."""
    folder = tempfile.mkdtemp(prefix="aws-")
    server = subprocess.Popen([sys.executable, "-P", SCRIPT, "--serve", f"{folder}/socket"])
    yield f"{folder}/socket"
    server.kill()
    server.wait()
    shutil.rmtree(folder)


def aws(there: str, *words: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", SCRIPT, there, *words]
    return subprocess.run(command, cwd=folder, env=os.environ | variables, capture_output=True, text=True)


@pytest.mark.parametrize(
    "words",
    [("--version",), ("s3", "cp", "here.txt", "nowhere"), ("configure", "get", "region")],
    ids=["right", "wrong", "environment"],
)
def test_a_command_prints_and_returns_what_the_real_one_does(
    there: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "config").write_text("[profile here]\nregion = eu-west-1\n")
    (tmp_path / "here.txt").touch()
    mine = {"AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_PROFILE": "here"}
    command = [sys.executable, "-m", "awscli", *words]
    real = subprocess.run(command, cwd=tmp_path, env=os.environ | mine, capture_output=True, text=True)
    warm = aws(there, *words, folder=tmp_path, **mine)
    assert (warm.returncode, warm.stdout, warm.stderr) == (real.returncode, real.stdout, real.stderr)


def test_a_command_ends_with_its_client(there: str, tmp_path: Path) -> None:
    """As under `timeout`, which kills what it started."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        mine = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}", "AWS_ACCESS_KEY_ID": "testing",
                "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}  # fmt: skip
        command = [sys.executable, "-I", "-S", SCRIPT, there, "sts", "get-caller-identity"]
        asked = subprocess.Popen(command, cwd=tmp_path, env=os.environ | mine)
        connection, _ = silent.accept()
        assert connection.recv(4) == b"POST"
        asked.send_signal(signal.SIGKILL)
        asked.wait()
        while connection.recv(65536):  # until its end, which comes when the command has ended
            pass
        connection.close()
