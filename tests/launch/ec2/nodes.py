"""The nodes of a rehearsal by themselves, with an AWS that a test fills: user data runs for real, without a launcher.

Nothing is left behind, which is asserted.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3

from launch.rehearse.aws.server import RequestLog, served
from launch.rehearse.nodes.ec2.namespaces import NodeNetwork, node_network, why_not_here
from launch.rehearse.nodes.ec2.node import Node as Machine
from launch.rehearse.nodes.ec2.node import NodeSetup, Volume, text_of

__all__ = ["Node", "Region", "Volume", "World", "held", "left_of", "region", "why_not_here"]

REGION = "us-east-1"
CLOUD = "10.77.0.1"  # where the nodes see AWS
PORT = 5000


def World(aws: str = f"http://{CLOUD}:{PORT}", **others: Any) -> NodeSetup:  # noqa: N802
    """launch.rehearse.nodes.ec2.node.NodeSetup, with AWS where it is here."""
    return NodeSetup(aws, **others)


@dataclass
class Node:
    """One instance, and what a test wants to know of it."""

    machine: Machine

    def __getattr__(self, name: str) -> Any:
        return getattr(self.machine, name)

    @property
    def shutdowns(self) -> list[str]:
        """The arguments of every call of shutdown."""
        return text_of(self.machine.root / "ec2" / "shutdown-calls").splitlines()

    @property
    def docker_calls(self) -> list[list[str]]:
        return [json.loads(line) for line in text_of(self.machine.root / "ec2" / "docker-calls").splitlines()]

    def wait_until_off(self, timeout_s: float = 300) -> None:
        """Returns when the node has turned itself off.  Fails, with its console, if it does not."""
        if not self.machine.process.wait(timeout_s):
            raise AssertionError(f"{self.machine.instance} still runs after {timeout_s:g} s:\n{self.machine.console}")

    def processes(self, *words: str) -> list[int]:
        """Its processes whose command line has all of `words`."""
        mine = Path(f"/proc/{self.machine.process.pid}/ns/pid_for_children").readlink()
        found = []
        for pid in [int(path.name) for path in Path("/proc").glob("[0-9]*")]:
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                if Path(f"/proc/{pid}/ns/pid").readlink() == mine and all(word in line for word in words):
                    found.append(pid)
            except OSError:  # it has just ended
                continue
        return found


@dataclass
class Region:
    """A network with AWS and nodes on it."""

    endpoint: str  # of AWS, for this process
    network: NodeNetwork
    held: ExitStack  # what is let go once nothing is left
    nodes: list[Node] = field(default_factory=list)

    @property
    def namespaces(self) -> set[str]:
        return self.network.namespaces

    def client(self, service: str) -> Any:
        return boto3.client(
            service, REGION, endpoint_url=self.endpoint, aws_access_key_id="test", aws_secret_access_key="test"
        )

    def launch(self, user_data: str, *, volume: Volume | None = None, world: NodeSetup | None = None) -> Node:
        """Starts a node with `volume` attached; it boots at once."""
        index = len(self.nodes)
        instance, address = f"i-{index:017x}", f"10.77.0.{10 + index}"
        node = Node(self.network.power_on(instance, address, user_data, world or World(), volume))
        self.nodes.append(node)
        self.held.enter_context(held(self.namespaces))
        return node


@contextmanager
def region(folder: Path) -> Iterator[Region]:
    """An empty region with AWS in it.  Everything in it is gone afterwards, which is asserted."""
    with ExitStack() as until_checked:
        with ExitStack() as stack:
            made = stack.enter_context(node_network(folder, f"{CLOUD}/24"))
            until_checked.enter_context(held(made.namespaces))
            stack.enter_context(served(RequestLog(), None, CLOUD, PORT, made.place))
            port = stack.enter_context(served(RequestLog(), None))
            here = Region(f"http://127.0.0.1:{port}", made, until_checked)
            urllib.request.urlopen(f"{here.endpoint}/moto-api/reset", b"").close()
            yield here
        left = left_of(folder, made.namespaces)
        assert left == [], left


@contextmanager
def held(namespaces: set[str]) -> Iterator[None]:
    """Meanwhile these keep their numbers: the kernel gives those of the dead to the next, such as another test's node.

    Not those of mounts, which would keep a node's loop devices.
    """
    opened = set[int]()
    for kind in ("net", "uts", "pid_for_children"):
        for link in Path("/proc").glob(f"[0-9]*/ns/{kind}"):
            with suppress(OSError):  # it has just ended
                if str(link.readlink()) in namespaces:
                    opened.add(os.open(link, os.O_RDONLY))
    try:
        yield
    finally:
        for file in opened:
            os.close(file)


def left_of(folder: Path, namespaces: set[str], within_s: float = 10.0) -> list[str]:
    """What a region in `folder` has left on this machine; the dead need a moment to go."""
    end = time.monotonic() + within_s
    while (left := _left_now(folder, namespaces)) and time.monotonic() < end:
        time.sleep(0.02)
    return left


def _left_now(folder: Path, namespaces: set[str]) -> list[str]:
    left = [f"mount {line}" for line in text_of(Path("/proc/self/mountinfo")).splitlines() if str(folder) in line]
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):
            left += [f"loop device {file}"] * (str(folder) in file.read_text())
    # Of threads as well: those of this process may have stayed in a node's network.
    for thread in _threads():
        for kind in ("net", "pid", "uts"):  # all that a node's processes have; see held()
            with suppress(OSError):  # it has just ended
                left += [f"process {thread}/{kind}"] * (str((thread / "ns" / kind).readlink()) in namespaces)
    return left


def _threads() -> Iterator[Path]:
    """Those of all processes.  A glob would end with an error where one ends meanwhile."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield from list((process / "task").iterdir())
