"""EC2 nodes in Linux namespaces, which run their real user data without AWS or Docker.  Needs root.

A node is a process tree in its own namespaces (network, mounts, host name, processes), with a root folder that shows
this machine's programs read-only.  All nodes are on one bridge, with AWS at its own address.  Namespaces have no names
and loop devices do not outlive their nodes, so even a killed rehearsal leaves none: a node runs only while this process
holds the other end of its standard input.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from launch.core import shell
from launch.rehearse.nodes import network
from launch.rehearse.nodes.ec2.node import (
    AWS_CLI,
    HERE,
    Imds,
    Machines,
    Node,
    NodeSetup,
    Result,
    Volume,
    check_aws_cli,
    environment,
    pin,
    programs,
    write_program,
)
from launch.rehearse.nodes.network import Bridge, in_network, why_no_namespaces

NEEDED = ("bash", "ip", "nsenter", "unshare", "losetup", "mkfs.ext4", "debugfs", "curl", "flock")

# Folders of the root that are the node's own; the others are this machine's, read-only.
OWN = {"data", "dev", "lost+found", "media", "mnt", "proc", "run", "srv", "sys", "tmp", "var"}
CHECKOUT = Path(__file__).resolve().parents[4]

DIFFERENCES = (
    "A node is a process tree in its own network, mount, host name and process namespaces, on this machine's kernel.",
    "docker is a stand-in: it runs the container's command with this Python and this checkout, without GPUs.",
)

DISK = "/ec2/disk"  # of a node with its own disk

BUILD = """
set -eu
root=$1 image=$2 volume=$3 disk=$4; shift 4
mount --bind "$root" "$root"
if [ -n "$disk" ]; then
    # A separate file system where user data writes to the system disk.
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
    # Read-only, so that writes fail; open and then detached, so that the device vanishes with its last user.
    loop=$(losetup --find --show --read-only "$image")
    exec 4< "$loop"
    losetup --detach "$loop"
    : > "$root/dev/nvme1n1"
    mount --bind "$loop" "$root/dev/nvme1n1"
    ln -s ../../nvme1n1 "$root/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_$volume"
fi
hostname "$(cat "$root/ec2/hostname")"
"""
# Builds the node's root and becomes its first process.  A line on stdin starts it once the network is ready; the node
# powers off when stdin is closed.
POWER_ON = f"""{BUILD}
exec chroot "$root" /bin/bash -c '
    exec 3<&0
    echo ready
    read -r _ <&3
    cat <&3 >/dev/null & plug=$!
    (: </ec2/switch) & switch=$!
    /ec2/bin/aws-server </dev/null >/dev/null 2>&1 &
    /var/lib/cloud/instance/scripts/part-001 </dev/null >/ec2/console 2>&1 &
    wait -n $plug $switch'
"""

# sleep: once the power is off, there is no shell to return to.
PATH, TMP = "/ec2/bin:/usr/sbin:/usr/bin:/sbin:/bin", "/tmp"  # noqa: S108  # the node's own

SHUTDOWN = """#!/bin/bash
echo "$*" >> /ec2/shutdown-calls
case ${!#} in now | -f) : > /ec2/switch && sleep 60 ;; esac
"""


def why_not_here() -> str | None:
    """Why this machine cannot run nodes, as "needs ..."; None if it can."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)}; apt-get install bash curl e2fsprogs iproute2 mount util-linux"
    return why_no_namespaces()


def fill_disk(node: Node) -> None:
    """Fill the node's own disk, which must exist.  Call again after files were removed."""
    disk = f"{node.root}{DISK}"
    network.fill_disk(node.process.pid, Path(f"/proc/{node.process.pid}/root{disk}"), disk)


@dataclass
class NodeNetwork(Machines):
    """A bridge with AWS and nodes on it."""

    bridge: Bridge
    namespaces: set[str] = field(default_factory=set)  # all that were made for it

    kind = "network namespaces"
    differences = DIFFERENCES

    @property
    def gateway(self) -> str:
        return self.bridge.address

    def place(self, make: Callable[[], Result]) -> Result:
        return self.bridge.call(make)

    def power_on(
        self, instance: str, address: str, user_data: str, setup: NodeSetup, volume: Volume | None = None
    ) -> Node:
        root = self.folder / instance
        _lay_out(root, address, self.folder / "hosts", user_data, setup)
        process = shell.start_child(
            ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "bash", "-c", POWER_ON, "bash",
             str(root), str(volume.image) if volume else "", volume.id.replace("-", "") if volume else "",
             DISK if setup.has_own_disk else "", *_shown_folders()],
            environment(setup, PATH, TMP),
        )  # fmt: skip
        node = Node(instance, address, root, volume, process)
        self.nodes.append(node)
        self.record_namespaces(process.pid)
        self.bridge.connect(process.pid, address, setup.rate, ["addr add 169.254.169.254/32 dev lo"])
        if setup.has_metadata:
            node.imds = in_network(process.pid, lambda: Imds(instance))
        # Also the shell that waits on stdin, which the first process has started already.
        for pid in (process.pid, *children(process.pid)):
            pin(pid, setup.cores)
        process.write_line("on")
        return node

    def check_aws_cli(self) -> None:
        # On a node, as nodes do not see all folders of this machine.
        root = self.folder / "check"
        _lay_out(
            root, "127.0.0.1", self.folder / "hosts-of-check", f"#!/bin/sh\nexec {shlex.join(AWS_CLI)}\n", NodeSetup("")
        )
        run = f'{BUILD}exec chroot "$root" /var/lib/cloud/instance/scripts/part-001'
        command = ["unshare", "--mount", "--uts", "--pid", "--fork", "bash", "-c", run, "bash"]
        check_aws_cli([*command, str(root), "", "", "", *_shown_folders()], environment(NodeSetup(""), PATH, TMP))

    def record_namespaces(self, pid: int) -> None:
        """Record the namespaces of process `pid`, so that tests can check that they are gone in the end."""
        mine, its = ({str(link.readlink()) for link in Path(f"/proc/{p}/ns").iterdir()} for p in ("self", pid))
        self.namespaces |= its - mine


@contextmanager
def node_network(folder: Path, cloud: str) -> Iterator[NodeNetwork]:
    """An empty network, with the nodes' files in `folder`; its nodes end with the block.

    cloud: AWS's address with the network's width, such as 10.77.0.1/24.
    """
    folder.mkdir(exist_ok=True)
    (folder / "hosts").write_text("127.0.0.1 localhost\n")
    with closing(Bridge(cloud)) as bridge, closing(NodeNetwork(folder, bridge)) as nodes:
        nodes.record_namespaces(bridge.pid)
        yield nodes


def _lay_out(root: Path, address: str, hosts: Path, user_data: str, setup: NodeSetup) -> None:
    """Create the node's own files."""
    for name in ("ec2/bin", "var/lib/cloud/scripts/per-boot", "run", "data", "dev", "proc", "sys", "tmp", "job"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    for link in [path for path in Path("/").iterdir() if path.is_symlink()]:
        (root / link.name).symlink_to(link.readlink())
    os.mkfifo(root / "ec2" / "switch")
    name = f"ip-{address.replace('.', '-')}"
    (root / "ec2" / "hostname").write_text(name)
    # In place of the VPC's name server: one file for all, so that nodes also know those that come later.
    with hosts.open("a") as file:
        # The second line, as torch looks up the names of addresses in their IPv6 form.
        file.write(f"{address} {name}\n::ffff:{address} {name}.ec2.internal\n")
    (root / "ec2" / "hosts").hardlink_to(hosts)
    if setup.image:
        shutil.copytree(setup.image, root / "ec2" / "image")
    for command, text in {**programs(), **_aws(), "shutdown": SHUTDOWN, "poweroff": SHUTDOWN, **setup.programs}.items():
        write_program(root / "ec2/bin" / command, text)
    write_program(root / "var/lib/cloud/instance/scripts/part-001", user_data)


def _aws() -> dict[str, str]:
    """The AWS CLI, which each node imports once."""
    python, script = quote(sys.executable), quote(str(HERE / "aws_cli.py"))
    return {
        "aws": f'#!/bin/sh\nexec {python} -I -S {script} /ec2/aws-socket "$@"\n',
        "aws-server": f"#!/bin/sh\nexec {python} -P {script} --serve /ec2/aws-socket\n",
    }


def _shown_folders() -> list[str]:
    """This machine's folders that a node sees: programs, Python and this checkout."""
    top = [
        str(path) for path in Path("/").iterdir() if path.is_dir() and not path.is_symlink() and path.name not in OWN
    ]
    needed = {str(CHECKOUT), sys.prefix, sys.base_prefix}
    return top + sorted(path for path in needed if Path(path).parts[1] in OWN)


def children(pid: int) -> list[int]:
    """The child processes of `pid`."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
