"""What every kind of node has: its volume, its programs, and how the rest of a rehearsal sees it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Protocol, TypeVar

from launch.core import shell
from launch.core.shell import ChildProcess
from launch.rehearse.nodes.ec2.imds import Imds
from launch.rehearse.stage.environment import NO_ACCOUNT

HERE = Path(__file__).resolve().parent
Result = TypeVar("Result")


@dataclass(frozen=True)
class Volume:
    """An EBS volume; image: an ext4 image of what it holds, or the folder itself for nodes that cannot mount."""

    id: str
    image: Path

    @classmethod
    def of(cls, folder: Path, volume_id: str, image: Path, mib: int = 16) -> Volume:
        """With a journal that was not closed, as in most snapshots."""
        shell.output_of(["mkfs.ext4", "-qF", "-d", str(folder), str(image), f"{mib}M"])
        shell.output_of(["debugfs", "-w", "-R", "feature needs_recovery", str(image)])
        return cls(volume_id, image)


@dataclass(frozen=True)
class World:
    """What a node finds, where that is not as it should be.

    aws: where the node looks for it; image: a folder that containers find in the place of this checkout; programs:
    instead of its own of these names, or beside them; cores: of this machine, that the node has for itself; none: all;
    rate: of its network, as tc writes it; has_own_disk: so that it can be full.
    """

    aws: str
    has_metadata: bool = True
    image: Path | None = None
    programs: Mapping[str, str] = field(default_factory=dict)
    cores: tuple[int, ...] = ()
    rate: str = ""
    has_own_disk: bool = False


@dataclass
class Node:
    """An instance that was started.  root: where its files are on this machine, also while it runs.

    process: what keeps it on; grace_s: how long it gets to end its processes by itself.
    """

    instance: str
    address: str
    root: Path
    volume: Volume | None
    process: ChildProcess
    imds: Imds | None = None
    grace_s: float = 0.0

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

    def pull_the_plug(self) -> None:
        """Ends it at once, whatever runs; twice is fine."""
        self.process.let_go(self.grace_s)
        if self.imds:
            self.imds.close()
            self.imds = None


class Machines(Protocol):
    """What makes nodes.

    gateway: where AWS is for them; address: the one of a node that would have `private` on AWS; differences: from
    EC2's, a sentence each.
    """

    @property
    def kind(self) -> str: ...

    @property
    def differences(self) -> Sequence[str]: ...

    @property
    def gateway(self) -> str: ...

    def address(self, private: str) -> str: ...

    def place(self, make: Callable[[], Result]) -> Result: ...

    def power_on(
        self, instance: str, address: str, user_data: str, world: World, volume: Volume | None = None
    ) -> Node: ...


def pin(pid: int, cores: Sequence[int]) -> None:
    """Lets a process, and what it starts from now on, run on these cores only, where the system can do that.

    Two nodes that both take all cores wait for each other's threads: a training takes forty times as long.
    """
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(pid, cores)


def share_of_cores(slot: int, nodes: int) -> tuple[int, ...]:
    """The cores of the node in place `slot` of so many."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    each = max(1, len(cores) // nodes)
    return tuple(cores[(slot * each + number) % len(cores)] for number in range(each)) if cores else ()


def programs() -> dict[str, str]:
    """The programs of a node that are not this machine's own, by name."""
    python, docker = quote(sys.executable), quote(str(HERE / "docker.py"))
    return {
        "python": f'#!/bin/sh\nexec {python} "$@"\n',
        "python3": f'#!/bin/sh\nexec {python} "$@"\n',
        "aws": f'#!/bin/sh\nexec {python} -m awscli "$@"\n',
        "docker": f'#!/bin/sh\nexec {python} -P {docker} "$@"\n',
    }


def environment(world: World, path: str, home: Path | str) -> dict[str, str]:
    """What every program of a node finds: this AWS, and no account of this machine's user."""
    return {**NO_ACCOUNT, "PATH": path, "HOME": str(home), "AWS_ENDPOINT_URL": world.aws}


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def text_of(path: Path) -> str:
    """A file's text; nothing where there is none."""
    return path.read_text(errors="replace") if path.exists() else ""
