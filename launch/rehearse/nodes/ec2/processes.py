"""EC2 nodes as plain processes, for users without root: Linux and macOS.

A node has a folder instead of a disk and, on Linux, its own loopback address.  It runs the real boot script, in which
only paths and ports are changed: see relocated().
"""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from launch.core import shell
from launch.rehearse.nodes.ec2.node import (
    AWS_CLI,
    HERE,
    Imds,
    Machines,
    Node,
    NodeSetup,
    Volume,
    check_aws_cli,
    environment,
    pin,
    programs,
    write_program,
)

LOCALHOST = "127.0.0.1"
BASH = (4, 4)  # the first version that sets $! for >(...), which boot.sh waits for; macOS has 3.2
PORT = 29400  # of the nodes' rendezvous, in boot.sh
GRACE_S = 5.0  # for a node to end its processes
# GNU's own or Linux's: other systems get those of programs.py.
GNU = ("flock", "timeout", "find", "tail")

DIFFERENCES = (
    "A node is a process tree in its own folder, with a loopback address; all share this machine's disk and user.",
    "In its boot script, the node's folder is put in front of /var/lib, /data, /dev/disk, /job and /run, and the "
    "metadata service and the rendezvous have other ports; the rest is the real script.",
    "docker, mount, ip and shutdown are stand-ins: docker runs the container's command with this Python and this "
    "checkout, without GPUs.",
)

SHUTDOWN = """#!/bin/sh
echo "$*" >> "$EC2_ROOT/ec2/shutdown-calls"
for last; do :; done
case $last in now | -f) kill "$EC2_POWER" && sleep 60 ;; esac
"""
# The boot script of the next job on warm nodes is relocated when the node has fetched it.
NEXT_JOB = """#!/bin/sh
case $1 in
    *.next) PYTHONPATH={checkout} {python} -P -m launch.rehearse.nodes.ec2.processes "$1" {root} {metadata} {port} ;;
esac
exec {bash} "$@"
"""
CHECKOUT = Path(__file__).resolve().parents[4]
# A volume is a link to its folder.
MOUNT = """#!/bin/sh
case $1 in
    -o) rmdir "$4" && ln -s "$(readlink "$3")" "$4" ;;
    *) echo "mount stand-in: unknown: $*" >&2; exit 1 ;;
esac
"""
ADDRESS = """#!/bin/sh
for last; do :; done
echo "1: {interface}    inet $last/8 scope host {interface}"
"""


def why_not_here() -> str | None:
    """Why nodes cannot be processes on this machine, as "needs ..."; None if they can."""
    missing = [name for name in ("bash", "curl") if shutil.which(name) is None]
    if missing:
        return f"needs {' and '.join(missing)}; install them, such as with apt-get install {' '.join(missing)}"
    version = shell.output_of([_bash(), "-c", 'echo "${BASH_VERSINFO[0]} ${BASH_VERSINFO[1]}"']).split()
    if tuple(map(int, version)) < BASH:
        return f"needs bash 4.4 or newer, and this is {'.'.join(version)}; on macOS: brew install bash"
    return None


def _bash() -> str:
    """The first bash on PATH: on macOS the system's own is too old."""
    return shutil.which("bash") or "bash"


@dataclass
class Processes(Machines):
    """Starts nodes that are plain processes."""

    block: int  # second number of their addresses; 0: all share 127.0.0.1
    rendezvous_port: int

    kind = "processes"
    differences = DIFFERENCES
    gateway = LOCALHOST

    def check_aws_cli(self) -> None:
        check_aws_cli([sys.executable, *AWS_CLI[1:]], environment(NodeSetup(""), os.defpath, os.devnull))

    def address(self, private: str) -> str:
        """172.31.16.4 -> 127.BLOCK.16.4."""
        return f"127.{self.block}.{private.split('.', 2)[2]}" if self.block else LOCALHOST

    def power_on(
        self, instance: str, address: str, user_data: str, setup: NodeSetup, volume: Volume | None = None
    ) -> Node:
        root = self.folder / instance
        imds = Imds(instance, (LOCALHOST, 0))
        try:
            metadata = f"http://{LOCALHOST}:{imds.server_address[1]}"
            _lay_out(root, relocated(user_data, root, metadata, self.rendezvous_port), setup, volume)
            bash = NEXT_JOB.format(checkout=quote(str(CHECKOUT)), python=quote(sys.executable), root=quote(str(root)),
                                   metadata=metadata, port=self.rendezvous_port, bash=quote(_bash()))  # fmt: skip
            write_program(root / "ec2/bin/bash", bash)
            command = [sys.executable, "-P", str(HERE / "programs.py"), "power", str(root)]
            process = shell.start_child(command, _environment(root, setup, metadata))
        except BaseException:
            imds.close()
            raise
        node = Node(instance, address, root, volume, process, imds, GRACE_S)
        self.nodes.append(node)
        pin(process.pid, setup.cores)
        process.write_line("on")
        return node


@contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    """Run nodes inside the block, with their files in `folder`."""
    folder.mkdir()
    with closing(Processes(folder, _free_block(), _free_port())) as machines:
        yield machines


def relocated(user_data: str, root: Path, metadata: str, rendezvous_port: int) -> str:
    """The boot script for a node whose disk is `root`.  Raises KeyError for a path that it no longer contains."""
    changes = {
        r"/var/lib/(?=ddp|cloud)": f"{root}/var/lib/",
        r"(?<![\w/.-])/data\b": f"{root}/data",
        r"/dev/disk/by-id": f"{root}/dev/disk/by-id",
        r"/dev/shm": f"{root}/dev/shm",  # noqa: S108  # never this machine's
        r"/job/run": f"{root}/job/run",
        r"/job/source": f"{root}/job/source",
        r"/job/toolkit": f"{root}/job/toolkit",
        r"(?<![\w/])/run/ddp": f"{root}/run/ddp",
        r"http://169\.254\.169\.254": metadata,
        rf"(?<=:){PORT}\b": str(rendezvous_port),
    }
    if not Path("/proc/uptime").exists():
        changes[r"cut -d\. -f1 /proc/uptime"] = "date +%s"
    for pattern in changes:
        if not re.search(pattern, user_data):
            raise KeyError(pattern)
    # All at once, as `root` itself may contain such a path.
    every = re.compile("|".join(f"({pattern})" for pattern in changes))
    new = list(changes.values())
    return every.sub(lambda match: new[(match.lastindex or 1) - 1], user_data)


def _lay_out(root: Path, user_data: str, setup: NodeSetup, volume: Volume | None) -> None:
    for name in ("ec2/bin", "var/lib/cloud/scripts/per-boot", "run", "tmp", "job", "data", "dev/disk/by-id"):
        (root / name).mkdir(parents=True)
    if volume:
        device = root / f"dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_{volume.id.replace('-', '')}"
        device.symlink_to(volume.image)
    interface = "lo" if sys.platform == "linux" else "lo0"
    gnus = f"{quote(sys.executable)} -P {quote(str(HERE / 'programs.py'))}"
    stand_ins = {
        **programs(),
        **{name: f'#!/bin/sh\nexec {gnus} {name} "$@"\n' for name in _missing()},
        "shutdown": SHUTDOWN, "poweroff": SHUTDOWN, "mount": MOUNT, "ip": ADDRESS.format(interface=interface),
        **setup.programs,
    }  # fmt: skip
    for command, text in stand_ins.items():
        write_program(root / "ec2/bin" / command, text)
    write_program(root / "ec2/user-data", user_data)


def _missing() -> tuple[str, ...]:
    """The GNU programs that this system lacks, or has in another version."""
    return () if sys.platform == "linux" else GNU


def _environment(root: Path, setup: NodeSetup, metadata: str) -> Mapping[str, str]:
    return {
        **environment(
            setup, f"{root}/ec2/bin:{os.defpath}:/usr/local/bin:/opt/homebrew/bin:/usr/sbin:/sbin", root / "tmp"
        ),
        "TMPDIR": f"{root}/tmp",  # noqa: S108  # the node's own
        "EC2_ROOT": str(root),
        "DDP_SERVICE": "yes",  # boot.sh must not use this machine's systemd
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata,
    }


def _free_block() -> int:
    """The second number of free loopback addresses; 0 where this machine has only 127.0.0.1."""
    for block in random.sample(range(1, 255), 20):  # no secret
        if _can_listen(f"127.{block}.0.1", PORT):
            return block
    return 0


def _can_listen(address: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOCALHOST, 0))
        return int(probe.getsockname()[1])


def main(script: str, root: str, metadata: str, port: str) -> None:
    """Relocate a boot script in place."""
    path = Path(script)
    path.write_text(relocated(path.read_text(), Path(root), metadata, int(port)))


if __name__ == "__main__":
    main(*sys.argv[1:])
