"""EC2 nodes on this machine, so that user data runs for real: no AWS, no Docker, nothing left behind.  Linux, root.

A node is a process tree in namespaces of its own (network, mounts, host name, processes), on a root folder
that shows this machine's programs read-only.  All nodes are on one bridge, with AWS at its own address.  No
namespace has a name and no loop device outlives its node, so that even a rehearsal that is killed leaves none: a
node runs only as long as we hold its plug.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from launch.core import shell
from launch.core.shell import ChildProcess
from launch.rehearse.nodes.ec2.imds import Imds
from launch.rehearse.nodes.ec2.node import Node, Volume, World, environment, pin, programs, write_program
from launch.rehearse.nodes.network import in_network, ip, slow_down, why_no_namespaces
from trainer.errors import MachineError

Result = TypeVar("Result")

NEEDED = ("ip", "nsenter", "unshare", "losetup", "mkfs.ext4", "debugfs", "curl", "flock")

# What of this machine a node has of its own; the rest it sees, read-only.
OWN = {"data", "dev", "lost+found", "media", "mnt", "proc", "run", "srv", "sys", "tmp", "var"}
CHECKOUT = Path(__file__).resolve().parents[4]

DIFFERENCES = (
    "A node is a process tree in its own network, mount, host name and process namespaces, on this machine's kernel.",
    "docker is a stand-in: it runs the container's command with this Python and this checkout, without GPUs.",
)

DISK = "/ec2/disk"  # of a node that has one of its own

# Builds the node's root and becomes its first process.  stdin is the plug: a line when the network is there, and
# the node goes off when it is closed.
POWER_ON = """
set -eu
root=$1 image=$2 volume=$3 disk=$4; shift 4
mount --bind "$root" "$root"
if [ -n "$disk" ]; then
    # A file system of its own in place of the system disk, where user data writes to it.
    mkdir "$root$disk"
    mount -t tmpfs tmpfs "$root$disk"
    mkdir -p "$root/var/lib/ddp"
    for folder in /var/lib/ddp /tmp; do
        mkdir -m 1777 "$root$disk/$(basename "$folder")"
        mount --bind "$root$disk/$(basename "$folder")" "$root$folder"
    done
fi
for folder; do
    mkdir -p "$root$folder"
    mount --rbind "$folder" "$root$folder"
    mount -o remount,bind,ro "$root$folder"
done
mount --bind "$root/ec2/hosts" "$root/etc/hosts"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    : > "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir -p "$root/dev/shm" "$root/dev/disk/by-id"
mount -t tmpfs tmpfs "$root/dev/shm"
if [ -n "$image" ]; then
    # Read-only, so that whoever writes fails; open and then detached, so that it goes with its last user.
    loop=$(losetup --find --show --read-only "$image")
    exec 4< "$loop"
    losetup --detach "$loop"
    : > "$root/dev/nvme1n1"
    mount --bind "$loop" "$root/dev/nvme1n1"
    ln -s ../../nvme1n1 "$root/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_$volume"
fi
hostname "$(cat "$root/ec2/hostname")"
exec chroot "$root" /bin/bash -c '
    exec 3<&0
    echo ready
    read -r _ <&3
    cat <&3 >/dev/null & plug=$!
    (: </ec2/switch) & switch=$!
    /var/lib/cloud/instance/scripts/part-001 </dev/null >/ec2/console 2>&1 &
    wait -n $plug $switch'
"""

# Once the power is off nothing is left to return to.
SHUTDOWN = """#!/bin/bash
echo "$*" >> /ec2/shutdown-calls
case ${!#} in now | -f) : > /ec2/switch && sleep 60 ;; esac
"""


def why_not_here() -> str | None:
    """Why nodes cannot be made on this machine, or None."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)} (Debian: iproute2, util-linux, mount, e2fsprogs, curl)"
    return why_no_namespaces()


def fill_disk(node: Node) -> None:
    """Leaves no room on its own disk, which it must have; what is removed later makes no room either."""
    with suppress(OSError, MachineError):  # the node has just gone, or the disk has got fuller than that
        disk = os.statvfs(f"/proc/{node.process.pid}/root{node.root}{DISK}")
        used = max(1, disk.f_blocks - disk.f_bfree) * disk.f_frsize
        shell.output_of(["nsenter", f"--mount=/proc/{node.process.pid}/ns/mnt", "mount", "-o", f"remount,size={used}",
                   f"{node.root}{DISK}"])  # fmt: skip


@dataclass
class Network:
    """A bridge with AWS and nodes on it.  cloud: AWS's address with the network's width, such as 10.77.0.1/24."""

    folder: Path
    cloud: str
    switch: ChildProcess
    nodes: list[Node] = field(default_factory=list)
    namespaces: set[str] = field(default_factory=set)  # that were made for it

    kind = "network namespaces"
    differences = DIFFERENCES

    @property
    def gateway(self) -> str:
        """AWS's address, for the nodes."""
        return self.cloud.partition("/")[0]

    def address(self, private: str) -> str:
        """The same: this network is the nodes' own."""
        return private

    def place(self, make: Callable[[], Result]) -> Result:
        """What `make` returns on the bridge: its sockets stay there."""
        return in_network(self.switch.pid, make)

    def power_on(self, instance: str, address: str, user_data: str, world: World, volume: Volume | None = None) -> Node:
        """Starts a node with `volume` attached; it boots at once."""
        root = self.folder / instance
        _lay_out(root, address, self.folder / "hosts", user_data, world)
        process = shell.start_child(
            ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "bash", "-c", POWER_ON, "bash",
             str(root), str(volume.image) if volume else "", volume.id.replace("-", "") if volume else "",
             DISK if world.has_own_disk else "", *_shown_folders()],
            environment(world, "/ec2/bin:/usr/sbin:/usr/bin:/sbin:/bin", "/tmp"),  # nosec B108  # the node's own
        )  # fmt: skip
        node = Node(instance, address, root, volume, process)
        self.nodes.append(node)
        self.note_namespaces(process.pid)
        self._plug_in(node, len(self.nodes), world.rate)
        if world.has_metadata:
            node.imds = in_network(process.pid, lambda: Imds(instance))
        # The shell that waits for its plug, and not only the first process, which has started it already.
        for pid in (process.pid, *children(process.pid)):
            pin(pid, world.cores)
        process.tell("on")
        return node

    def note_namespaces(self, pid: int) -> None:
        """Remembers those of process `pid` that are not this process's, to see that they are gone in the end."""
        mine, its = ({str(link.readlink()) for link in Path(f"/proc/{p}/ns").iterdir()} for p in ("self", pid))
        self.namespaces |= its - mine

    def _plug_in(self, node: Node, index: int, rate: str) -> None:
        bridge, pid = f"/proc/{self.switch.pid}/ns/net", node.process.pid
        width = self.cloud.partition("/")[2]
        ip(bridge, f"link add port{index} type veth peer name eth0 netns {pid}",
           f"link set port{index} master bridge up")  # fmt: skip
        ip(f"/proc/{pid}/ns/net", "link set lo up", "addr add 169.254.169.254/32 dev lo",
           f"addr add {node.address}/{width} dev eth0", "link set eth0 up")  # fmt: skip
        if rate:  # what a node sends is held back at its own end, what it gets at the bridge's
            slow_down(f"/proc/{pid}/ns/net", "eth0", rate)
            slow_down(bridge, f"port{index}", rate)

    def why_not_slow(self) -> str | None:
        """Why no network here can be slowed down, or None."""
        if shutil.which("tc") is None:
            return "needs tc (Debian: iproute2)"
        try:
            slow_down(f"/proc/{self.switch.pid}/ns/net", "bridge", "100gbit")
        except MachineError as error:
            return f"needs a kernel with token buckets (sch_tbf): {error}"
        return None


@contextmanager
def network(folder: Path, cloud: str) -> Iterator[Network]:
    """An empty network, whose nodes keep their files in `folder`.  Afterwards no node runs."""
    folder.mkdir(exist_ok=True)
    (folder / "hosts").write_text("127.0.0.1 localhost\n")
    switch = shell.start_child(
        ["unshare", "--net", "sh", "-c", "echo ready; exec cat >/dev/null"], {"PATH": os.defpath}
    )
    made = Network(folder, cloud, switch)
    try:
        made.note_namespaces(switch.pid)
        # With an address of its own: otherwise it has one of its ports', and is out of reach when that node goes.
        ip(f"/proc/{switch.pid}/ns/net", "link set lo up", "link add bridge address 02:00:00:00:00:01 type bridge",
           f"addr add {cloud} dev bridge", "link set bridge up")  # fmt: skip
        yield made
    finally:
        for node in made.nodes:
            node.pull_the_plug()
        switch.let_go()


def _lay_out(root: Path, address: str, hosts: Path, user_data: str, world: World) -> None:
    """The node's own files."""
    for name in ("ec2/bin", "var/lib/cloud/scripts/per-boot", "run", "data", "dev", "proc", "sys", "tmp", "job"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    for link in [path for path in Path("/").iterdir() if path.is_symlink()]:
        (root / link.name).symlink_to(link.readlink())
    os.mkfifo(root / "ec2" / "switch")
    name = f"ip-{address.replace('.', '-')}"
    (root / "ec2" / "hostname").write_text(name)
    # Instead of the VPC's name server: one file for all, so that nodes know also those that come later.
    with hosts.open("a") as file:
        # The second, because torch asks for the names of addresses that it sees as IPv6.
        file.write(f"{address} {name}\n::ffff:{address} {name}.ec2.internal\n")
    (root / "ec2" / "hosts").hardlink_to(hosts)
    if world.image:
        shutil.copytree(world.image, root / "ec2" / "image")
    for command, text in {**programs(), "shutdown": SHUTDOWN, "poweroff": SHUTDOWN, **world.programs}.items():
        write_program(root / "ec2/bin" / command, text)
    write_program(root / "var/lib/cloud/instance/scripts/part-001", user_data)


def _shown_folders() -> list[str]:
    """What of this machine a node sees: its programs, and Python with this checkout wherever they are."""
    top = [
        str(path) for path in Path("/").iterdir() if path.is_dir() and not path.is_symlink() and path.name not in OWN
    ]
    needed = {str(CHECKOUT), sys.prefix, sys.base_prefix}
    return top + sorted(path for path in needed if Path(path).parts[1] in OWN)


def children(pid: int) -> list[int]:
    """The processes that `pid` has started, as Linux lists them."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
