"""EC2 nodes on this machine, so that user data runs for real: no AWS, no Docker, nothing left behind.

A node is a process tree in namespaces of its own (network, mounts, host name, processes), on a root folder
that shows this machine's programs read-only.  The nodes of a Region are on one bridge, with moto as their
AWS.  No namespace has a name and no loop device outlives its node, so that even a test that is killed leaves
none: a node runs only as long as the test holds its plug.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from tests.conftest import ROOT
from tests.launch.ec2.imds import Imds

Result = TypeVar("Result")

REGION = "us-east-1"
CLOUD = "10.77.0.1"  # where the nodes see AWS
PORT = 5000
NEEDED = ("ip", "nsenter", "unshare", "losetup", "mkfs.ext4", "debugfs", "curl", "flock")

# What of this machine a node has of its own; the rest it sees, read-only.
OWN = {"data", "dev", "lost+found", "media", "mnt", "proc", "run", "srv", "sys", "tmp", "var"}

# Builds the node's root and becomes its first process.  stdin is the plug: a line when the network is there, and
# the node goes off when it is closed.
POWER_ON = """
set -eu
root=$1 image=$2 volume=$3; shift 3
mount --bind "$root" "$root"
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
    return None if os.geteuid() == 0 else "needs root, for namespaces and mounts"


@dataclass(frozen=True)
class Volume:
    """An EBS volume: an ext4 image of a folder, with a journal that was not closed, as in most snapshots."""

    id: str
    image: Path

    @classmethod
    def of(cls, folder: Path, volume_id: str, image: Path) -> Volume:
        subprocess.run(["mkfs.ext4", "-qF", "-d", folder, image, "16M"], check=True, capture_output=True)
        subprocess.run(["debugfs", "-w", "-R", "feature needs_recovery", image], check=True, capture_output=True)
        return cls(volume_id, image)


@dataclass(frozen=True)
class World:
    """What a node finds, where that is not as it should be.

    aws: where the node looks for it; image: a folder that containers find in the place of this checkout;
    docker_refuses, docker_hangs: commands of docker, in words, that fail or never end.
    """

    has_metadata: bool = True
    aws: str = f"http://{CLOUD}:{PORT}"
    image: Path | None = None
    docker_refuses: str = ""
    docker_hangs: str = ""


@dataclass
class Node:
    """One instance.  Its files are under `root`, also while it runs; process: the whole of it."""

    instance: str
    address: str
    root: Path
    volume: Volume | None
    process: subprocess.Popen[bytes]
    imds: Imds | None = None

    @property
    def console(self) -> str:
        return _text(self.root / "ec2" / "console")

    @property
    def shutdowns(self) -> list[str]:
        """The arguments of every call of shutdown."""
        return _text(self.root / "ec2" / "shutdown-calls").splitlines()

    @property
    def docker_calls(self) -> list[list[str]]:
        return [json.loads(line) for line in _text(self.root / "ec2" / "docker-calls").splitlines()]

    @property
    def is_on(self) -> bool:
        return self.process.poll() is None

    def wait_until_off(self, timeout_s: float = 300) -> None:
        """Returns when the node has turned itself off.  Fails, with its console, if it does not."""
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.instance} still runs after {timeout_s:g} s:\n{self.console}") from None

    def processes(self, *words: str) -> list[int]:
        """Its processes whose command line has all of `words`."""
        mine = Path(f"/proc/{self.process.pid}/ns/pid_for_children").readlink()
        found = []
        for pid in [int(path.name) for path in Path("/proc").glob("[0-9]*")]:
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                if Path(f"/proc/{pid}/ns/pid").readlink() == mine and all(word in line for word in words):
                    found.append(pid)
            except OSError:  # it has just ended
                continue
        return found

    def pull_the_plug(self) -> None:
        """Ends it at once, whatever runs."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        if self.imds:
            self.imds.close()
            self.imds = None


@dataclass
class Region:
    """A network with AWS and nodes on it."""

    folder: Path
    endpoint: str  # of AWS, for this process
    switch: subprocess.Popen[bytes]
    nodes: list[Node] = field(default_factory=list)
    namespaces: set[str] = field(default_factory=set)  # that were made for it

    def client(self, service: str) -> Any:
        return boto3.client(
            service, REGION, endpoint_url=self.endpoint, aws_access_key_id="test", aws_secret_access_key="test"
        )

    def launch(self, user_data: str, *, volume: Volume | None = None, world: World = World()) -> Node:
        """Starts a node with `volume` attached; it boots at once."""
        index = len(self.nodes)
        instance, address = f"i-{index:017x}", f"10.77.0.{10 + index}"
        root = self.folder / instance
        _lay_out(root, address, user_data, world)
        process = _held(
            ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "bash", "-c", POWER_ON, "bash",
             str(root), str(volume.image) if volume else "", volume.id.replace("-", "") if volume else "",
             *_shown_folders()],
            {"PATH": "/ec2/bin:/usr/sbin:/usr/bin:/sbin:/bin", "AWS_ENDPOINT_URL": world.aws},
        )  # fmt: skip
        node = Node(instance, address, root, volume, process)
        self.nodes.append(node)
        self.note_namespaces(process)
        self._plug_in(node, index)
        if world.has_metadata:
            node.imds = _in_network(process.pid, lambda: Imds(instance))
        assert process.stdin is not None
        process.stdin.write(b"on\n")
        process.stdin.flush()
        return node

    def note_namespaces(self, process: subprocess.Popen[bytes]) -> None:
        """Remembers those of `process` that are not this process's, to see that they are gone in the end."""
        mine, its = (
            {str(link.readlink()) for link in Path(f"/proc/{pid}/ns").iterdir()} for pid in ("self", process.pid)
        )
        self.namespaces |= its - mine

    def _plug_in(self, node: Node, index: int) -> None:
        bridge, pid = f"/proc/{self.switch.pid}/ns/net", node.process.pid
        _ip(bridge, f"link add port{index} type veth peer name eth0 netns {pid}",
            f"link set port{index} master bridge up")  # fmt: skip
        _ip(f"/proc/{pid}/ns/net", "link set lo up", "addr add 169.254.169.254/32 dev lo",
            f"addr add {node.address}/24 dev eth0", "link set eth0 up")  # fmt: skip


@contextmanager
def region(folder: Path) -> Iterator[Region]:
    """An empty region with AWS in it.  Everything in it is gone afterwards, which is asserted."""
    folder.mkdir()
    with ExitStack() as stack:
        switch = _held(
            ["unshare", "--net", "sh", "-c", "echo ready; exec cat >/dev/null"], {"PATH": os.environ["PATH"]}
        )
        stack.callback(_let_go, switch)
        # With an address of its own: otherwise it has one of its ports', and is out of reach when that node goes.
        _ip(f"/proc/{switch.pid}/ns/net", "link set lo up", "link add bridge address 02:00:00:00:00:01 type bridge",
            f"addr add {CLOUD}/24 dev bridge", "link set bridge up")  # fmt: skip
        stack.enter_context(_moto(CLOUD, PORT, switch.pid))
        port = stack.enter_context(_moto("127.0.0.1", 0, os.getpid()))
        made = Region(folder, f"http://127.0.0.1:{port}", switch)
        made.note_namespaces(switch)
        urllib.request.urlopen(f"{made.endpoint}/moto-api/reset", b"").close()
        stack.callback(lambda: [node.pull_the_plug() for node in made.nodes])
        yield made
    left = left_of(folder, made.namespaces)
    assert left == [], left


def left_of(folder: Path, namespaces: set[str], within_s: float = 10.0) -> list[str]:
    """What a region in `folder` has left on this machine; the dead need a moment to go."""
    end = time.monotonic() + within_s
    while (left := _left_now(folder, namespaces)) and time.monotonic() < end:
        time.sleep(0.02)
    return left


def _left_now(folder: Path, namespaces: set[str]) -> list[str]:
    left = [f"mount {line}" for line in _text(Path("/proc/self/mountinfo")).splitlines() if str(folder) in line]
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):
            left += [f"loop device {file}"] * (str(folder) in file.read_text())
    # Of threads as well: those of this process may have stayed in a node's network.
    for link in Path("/proc").glob("[0-9]*/task/[0-9]*/ns"):
        for kind in ("net", "mnt", "pid", "uts"):
            with suppress(OSError):  # it has just ended
                left += [f"process {link}/{kind}"] * (str((link / kind).readlink()) in namespaces)
    return left


def _lay_out(root: Path, address: str, user_data: str, world: World) -> None:
    """The node's own files."""
    script = root / "var/lib/cloud/instance/scripts/part-001"
    for name in ("ec2/bin", "var/lib/cloud/scripts/per-boot", "run", "data", "dev", "proc", "sys", "tmp", "job"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    for link in [path for path in Path("/").iterdir() if path.is_symlink()]:
        (root / link.name).symlink_to(link.readlink())
    os.mkfifo(root / "ec2" / "switch")
    names = {f"10.77.0.{host}": f"ip-10-77-0-{host}" for host in range(1, 255)}
    (root / "ec2" / "hostname").write_text(names[address])
    # Instead of the VPC's name server.
    (root / "ec2" / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{a} {n}\n" for a, n in names.items()))
    (root / "ec2" / "docker-refuses").write_text(world.docker_refuses)
    (root / "ec2" / "docker-hangs").write_text(world.docker_hangs)
    if world.image:
        shutil.copytree(world.image, root / "ec2" / "image")
    python = sys.executable
    for command, text in {
        "python": f'#!/bin/sh\nexec {python} "$@"\n',
        "python3": f'#!/bin/sh\nexec {python} "$@"\n',
        "aws": f'#!/bin/sh\nexec {python} -m awscli "$@"\n',
        "docker": f'#!/bin/sh\nexec {python} {Path(__file__).parent / "docker_stand_in"} "$@"\n',
        "shutdown": SHUTDOWN,
        "poweroff": SHUTDOWN,
    }.items():
        _write_program(root / "ec2/bin" / command, text)
    script.parent.mkdir(parents=True)
    _write_program(script, user_data)


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _shown_folders() -> list[str]:
    """What of this machine a node sees: its programs, and Python with this checkout wherever they are."""
    top = [
        str(path) for path in Path("/").iterdir() if path.is_dir() and not path.is_symlink() and path.name not in OWN
    ]
    needed = {str(ROOT), sys.prefix, sys.base_prefix}
    return top + sorted(path for path in needed if Path(path).parts[1] in OWN)


def _held(command: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Starts a process that lives as long as its stdin is open; returns once it says that it is ready.

    In a session of its own, so that Ctrl-C ends the test first, and the test it.
    """
    process = subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, bufsize=0
    )
    assert process.stdout is not None
    if process.stdout.readline() != b"ready\n":
        process.wait()
        raise RuntimeError(f"{command[0]} ended with {process.returncode}; its error is above")
    return process


def _let_go(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def _ip(network: str, *lines: str) -> None:
    """Runs ip's commands in a network namespace."""
    subprocess.run(["nsenter", f"--net={network}", "ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)


def _in_network(pid: int, make: Callable[[], Result]) -> Result:
    """What `make` returns in the network of process `pid`: its sockets and threads stay there."""
    results: list[Result] = []

    def enter_and_make() -> None:
        with Path(f"/proc/{pid}/ns/net").open() as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0):
                raise OSError(ctypes.get_errno(), "setns")
        results.append(make())

    # A thread, for only it changes its network.
    thread = threading.Thread(target=enter_and_make)
    thread.start()
    thread.join()
    return results[0]


@contextmanager
def _moto(address: str, port: int, network_of: int) -> Iterator[int]:
    """AWS at `address`, in the network of a process; gives the port.  All of this process are one and the same."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = DomainDispatcherApplication(create_backend_app)
    server = _in_network(
        network_of, lambda: make_server(address, port, app, threaded=True, request_handler=MotoRequestHandler)
    )
    # moto's own ThreadedMotoServer takes half a second to stop, and leaves its socket open.
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
