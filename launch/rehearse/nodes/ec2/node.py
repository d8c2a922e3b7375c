"""The interface of rehearsed nodes, and what both kinds share: volumes and programs."""

from __future__ import annotations

import json
import os
import secrets
import site
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shlex import quote
from typing import ClassVar, TypeVar

from launch.core import shell
from launch.core.errors import NotSetUp
from launch.core.shell import ChildProcess
from launch.rehearse.environment import NO_ACCOUNT

HERE = Path(__file__).resolve().parent
CLOSED_PORT = "http://127.0.0.1:9"  # a closed port; on AWS there would be no answer, which takes longer
# Endpoint -> suffix of the AWS CLI's variable for its address.
VARIABLES = {"s3": "S3", "logs": "CLOUDWATCH_LOGS", "ecr.api": "ECR", "ssm": "SSM",
             "secretsmanager": "SECRETS_MANAGER"}  # fmt: skip
Result = TypeVar("Result")
AWS_CLI = ("python", "-P", "-m", "awscli", "--version")
# The kernel log of a node with a broken GPU: https://docs.nvidia.com/deploy/xid-errors
SICK_DMESG = """#!/bin/sh
echo '[   71.514022] NVRM: Xid (PCI:0000:00:1e): 79, GPU has fallen off the bus.'
"""


@dataclass(frozen=True)
class Volume:
    """An EBS volume."""

    id: str
    image: Path  # an ext4 image of its files, or their folder for nodes that cannot mount

    @classmethod
    def of(cls, folder: Path, volume_id: str, image: Path, mib: int = 16) -> Volume:
        """A volume with the files of `folder`, and with a journal that was not closed, as in most snapshots."""
        shell.output_of(["mkfs.ext4", "-qF", "-d", str(folder), str(image), f"{mib}M"])
        shell.output_of(["debugfs", "-w", "-R", "feature needs_recovery", str(image)])
        return cls(volume_id, image)


@dataclass(frozen=True)
class NodeSetup:
    """How a node differs from a plain one."""

    aws: str  # the URL of its AWS
    has_metadata: bool = True
    image: Path | None = None  # a folder that containers get as their image (default: this checkout)
    programs: Mapping[str, str] = field(default_factory=dict)  # added to its own, or replacing them, by name
    cores: tuple[int, ...] = ()  # of this machine, for this node alone (default: all)
    rate: str = ""  # of its network, in tc's notation
    has_own_disk: bool = False  # a file system that can be filled
    reaches: frozenset[str] | None = None  # services of AWS by the names of endpoints (default: all)


@dataclass
class Node:
    """A running node."""

    instance: str
    address: str
    root: Path  # its files on this machine
    volume: Volume | None
    process: ChildProcess  # keeps it on
    imds: Imds | None = None
    grace_s: float = 0.0  # how long it may take to end its processes

    @property
    def console(self) -> str:
        return text_of(self.root / "ec2" / "console")

    @property
    def is_on(self) -> bool:
        return self.process.is_alive

    @property
    def has_container(self) -> bool:
        containers = self.root / "run" / "containers"
        return containers.exists() and any(containers.iterdir())

    def power_off(self) -> None:
        """End it at once, with all its processes; a second call does nothing."""
        self.process.close(self.grace_s)
        if self.imds:
            self.imds.close()
            self.imds = None


@dataclass
class Machines(ABC):
    """Starts nodes, whose files are in `folder`."""

    folder: Path
    nodes: list[Node] = field(default_factory=list, kw_only=True)
    kind: ClassVar[str]
    differences: ClassVar[Sequence[str]]  # from EC2's nodes, one sentence each

    @property
    @abstractmethod
    def gateway(self) -> str:
        """AWS's address for the nodes."""

    def address(self, private: str) -> str:
        """The address here of a node whose address on AWS would be `private`."""
        return private

    def place(self, make: Callable[[], Result]) -> Result:
        """Call `make`, which opens a socket, where nodes can reach it; return its result."""
        return make()

    @abstractmethod
    def check_aws_cli(self) -> None:
        """Raise NotSetUp if nodes could not run the AWS CLI."""

    @abstractmethod
    def power_on(
        self, instance: str, address: str, user_data: str, setup: NodeSetup, volume: Volume | None = None
    ) -> Node:
        """Start a node with `volume` attached; it boots at once."""

    def close(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.power_off()


def pin(pid: int, cores: Sequence[int]) -> None:
    """Limit a process, and what it starts from now on, to these cores, where the system supports it.

    Two nodes that both use all cores wait for each other's threads: training takes forty times as long.
    """
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(pid, cores)


def share_of_cores(slot: int, nodes: int) -> tuple[int, ...]:
    """The cores of node `slot` of `nodes`."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    each = max(1, len(cores) // nodes)
    return tuple(cores[(slot * each + number) % len(cores)] for number in range(each)) if cores else ()


def programs() -> dict[str, str]:
    """The programs of a node that replace this machine's own, by name."""
    python, docker = quote(sys.executable), quote(str(HERE / "docker.py"))
    return {
        "python": f'#!/bin/sh\nexec {python} "$@"\n',
        "python3": f'#!/bin/sh\nexec {python} "$@"\n',
        "aws": f'#!/bin/sh\nexec {python} -m awscli "$@"\n',
        "docker": f'#!/bin/sh\nexec {python} -P {docker} "$@"\n',
        "dmesg": "#!/bin/sh\n",  # what the log of this machine's kernel is not the node's
    }


def environment(setup: NodeSetup, path: str, home: Path | str) -> dict[str, str]:
    """The environment of every program on a node: the embedded AWS, and nothing of this machine's user."""
    bare = bare_environment(path, home)
    if setup.reaches is None:
        return {**bare, "AWS_ENDPOINT_URL": setup.aws}
    reached = {f"AWS_ENDPOINT_URL_{VARIABLES[name]}": setup.aws for name in setup.reaches & VARIABLES.keys()}
    return {**bare, "AWS_ENDPOINT_URL": CLOSED_PORT, "EC2_REACHES": " ".join(sorted(setup.reaches)), **reached}


def bare_environment(path: str, home: Path | str) -> dict[str, str]:
    """Without AWS."""
    # pip install --user puts modules below HOME, which is another one here.
    return {**NO_ACCOUNT, "PATH": path, "HOME": str(home), "PYTHONUSERBASE": site.getuserbase()}


def check_aws_cli(command: Sequence[str], env: Mapping[str, str]) -> None:
    """Raise NotSetUp if `command`, which runs AWS_CLI as a node does, fails: a boot script would fail silently."""
    result = shell.run_captured(command, env)
    if result.code:
        reason = (result.err.strip().splitlines() or ["no output"])[-1]
        raise NotSetUp(
            f"nodes need the AWS CLI of this Python ({reason}); run pip install -c constraints.txt -e '.[rehearse]' in "
            "the checkout"
        )


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def text_of(path: Path) -> str:
    """A file's text; empty if there is no such file."""
    return path.read_text(errors="replace") if path.exists() else ""


# ---- the instance metadata service


ADDRESS = ("169.254.169.254", 80)
ROLE = "ddp-node"
KEY = "ASIATESTTESTTESTTEST"  # of the role; pragma: allowlist secret
TOKEN = secrets.token_urlsafe(32)  # of its session; secret from this machine's other users


class Imds(ThreadingHTTPServer):
    """Serves until close().  Create it in a thread in the node's network namespace."""

    daemon_threads = True

    def __init__(self, instance: str, address: tuple[str, int] = ADDRESS) -> None:
        super().__init__(address, _Handler)
        self._tokens: dict[str, float] = {}  # when each expires (monotonic, s)
        self._answers = {
            "instance-id": instance,
            "iam/security-credentials/": ROLE,
            f"iam/security-credentials/{ROLE}": json.dumps(_credentials()),
        }
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def give_spot_notice(self) -> None:
        """Announce that EC2 reclaims the instance in two minutes."""
        soon = datetime.now(UTC) + timedelta(minutes=2)
        self._answers["spot/instance-action"] = json.dumps(
            {"action": "terminate", "time": soon.strftime("%Y-%m-%dT%H:%M:%SZ")}
        )

    def close(self) -> None:
        """Stop serving and free the node's network."""
        self.shutdown()
        self._thread.join()
        self.server_close()

    def new_token(self, ttl_s: int) -> str:
        token = secrets.token_urlsafe(40)
        self._tokens[token] = time.monotonic() + ttl_s
        return token

    def knows(self, token: str | None) -> bool:
        return self._tokens.get(token or "", 0.0) > time.monotonic()

    def answer(self, path: str) -> str | None:
        return self._answers.get(path)


class _Handler(BaseHTTPRequestHandler):
    server: Imds

    def handle(self) -> None:
        with suppress(ConnectionError):  # clients give up after two seconds, on a busy machine before the answer
            super().handle()

    def do_PUT(self) -> None:
        ttl_s = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        if self.path != "/latest/api/token":
            self._send(404)
        elif not ttl_s.isdigit() or not 1 <= int(ttl_s) <= 21_600:
            self._send(400)
        else:
            self._send(200, self.server.new_token(int(ttl_s)), {"X-aws-ec2-metadata-token-ttl-seconds": ttl_s})

    def do_GET(self) -> None:
        answer = self.server.answer(self.path.removeprefix("/latest/meta-data/"))
        if not self.server.knows(self.headers.get("X-aws-ec2-metadata-token")):
            self._send(401)
        elif answer is None:
            self._send(404)
        else:
            self._send(200, answer)

    def _send(self, status: int, text: str = "", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(text)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


def _credentials() -> dict[str, str]:
    """Credentials of a role, in EC2's format; the secret is arbitrary, as the embedded AWS checks the token."""
    now = datetime.now(UTC)
    return {
        "Code": "Success",
        "Type": "AWS-HMAC",
        "AccessKeyId": KEY,
        "SecretAccessKey": "not-a-secret",
        "Token": TOKEN,
        "LastUpdated": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "Expiration": (now + timedelta(hours=6)).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
