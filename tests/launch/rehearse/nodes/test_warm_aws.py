"""AWS's command line, read once by a node: it does what `python -m awscli` does."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.rehearse.nodes.ec2.node import HERE

SCRIPT = str(HERE / "warm_aws.py")


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


def test_a_command_ends_with_who_asked_for_it(there: str, tmp_path: Path) -> None:
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
