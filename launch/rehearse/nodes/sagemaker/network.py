"""A network of SageMaker instances on this machine, each a host with its own /opt/ml.  Linux, root.

As on AWS they have names that resolve; they reach only each other and what is exposed to them.  A host ends with the
container in it, and the network with this process.
"""

from __future__ import annotations

import os
import shutil
import socket
import socketserver
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from launch.core import shell
from launch.core.shell import ChildProcess
from launch.rehearse.nodes.network import in_network, ip, slow_down, why_no_namespaces
from trainer.errors import MachineError

CLOUD = "10.78.0.1"  # where hosts see what is exposed to them
NEEDED = ("bash", "ip", "nsenter", "unshare")

# Becomes the container in a host of its own, once the network is there.  $disk: a folder of its /opt/ml that gets a
# file system of its own, which the caller can fill.
POWER_ON = """
set -eu
base=$1 ml=$2 network=$3 name=$4 disk=$5; shift 5
if [ -n "$disk" ]; then
    mkdir -p "$base/tmp/disk" "$base/$disk"
    mount -t tmpfs tmpfs "$base/tmp/disk"
    cp -a "$base/$disk/." "$base/tmp/disk"
    mount --move "$base/tmp/disk" "$base/$disk"
fi
mount --rbind "$base" "$ml"
mount --bind "$network/hosts" /etc/hosts
mount --bind "$network/$name.environment" /etc/environment
hostname "$name"
cd "$ml"
echo ready
read -r _
exec "$@" 2>&1
"""


def why_no_network() -> str | None:
    """Why hosts cannot be made on this machine, as "needs ..."; None if they can."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)}; apt-get install bash iproute2 util-linux"
    if not Path("/etc/environment").exists():
        return "needs a file /etc/environment; touch /etc/environment"
    return why_no_namespaces()


def why_not_slow() -> str | None:
    """Why networks cannot be slowed down on this machine, as "needs ..."; None if they can."""
    if why := why_no_network():
        return why
    if shutil.which("tc") is None:
        return "needs tc; apt-get install iproute2"
    switch = _switch()
    try:
        slow_down(f"/proc/{switch.pid}/ns/net", "lo", "100gbit")
    except MachineError as error:
        return f"needs a kernel with token buckets (sch_tbf): {error}"
    finally:
        switch.close()
    return None


@dataclass
class HostNetwork:
    """A bridge with hosts."""

    folder: Path  # names, addresses and process IDs of the hosts
    names: Sequence[str]
    switch: ChildProcess
    rate: str = ""  # limit for each to send and receive, such as 200mbit
    servers: list[socketserver.BaseServer] = field(default_factory=list)

    @property
    def ml(self) -> Path:
        """Where each host sees its own base."""
        return self.folder / "ml"

    def command(self, name: str, base: Path, disk: str) -> list[str]:
        """The command that makes the host `name` and then runs, in it, the command that follows."""
        box = [str(base), str(self.ml), str(self.folder), name, disk]
        return ["unshare", "--net", "--mount", "--uts", "bash", "-c", POWER_ON, "bash", *box]

    def expose(self, port: int) -> str:
        """Makes 127.0.0.1:port of this machine, such as moto, reachable for the hosts; returns its URL there."""
        server = in_network(self.switch.pid, lambda: _Relay(port))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.servers.append(server)
        return f"http://{CLOUD}:{server.server_address[1]}"

    def connect(self, name: str, process: ChildProcess) -> None:
        """Connects the host in which `process` runs."""
        index, bridge, inside = self.names.index(name), self._bridge, f"/proc/{process.pid}/ns/net"
        (self.folder / f"{name}.pid").write_text(str(process.pid))
        ip(bridge, f"link add port{index} type veth peer name eth0 netns {process.pid}",
           f"link set port{index} master bridge up")  # fmt: skip
        ip(inside, "link set lo up", f"addr add {address(index)}/24 dev eth0", "link set eth0 up")
        if self.rate:  # sending is limited at the host's end, receiving at the bridge's
            slow_down(inside, "eth0", self.rate)
            slow_down(bridge, f"port{index}", self.rate)

    @property
    def _bridge(self) -> str:
        return f"/proc/{self.switch.pid}/ns/net"


@contextmanager
def network(folder: Path, names: Sequence[str], rate: str = "") -> Iterator[HostNetwork]:
    """A network for hosts with these names, in rank order."""
    folder.mkdir(parents=True)
    (folder / "ml").mkdir()
    # The second line, as torch looks up the names of addresses in their IPv6 form.
    known = "".join(f"{address(i)} {name}\n::ffff:{address(i)} {name}.internal\n" for i, name in enumerate(names))
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{known}")
    for name in names:
        (folder / f"{name}.environment").touch()
    switch = _switch()
    bridge = HostNetwork(folder, names, switch, rate)
    try:
        # With a MAC address of its own: otherwise it has that of a port, and is unreachable when that host ends.
        ip(f"/proc/{switch.pid}/ns/net", "link set lo up", "link add bridge address 02:00:00:00:00:01 type bridge",
           f"addr add {CLOUD}/24 dev bridge", "link set bridge up")  # fmt: skip
        yield bridge
    finally:
        for server in bridge.servers:
            server.shutdown()
            server.server_close()
        switch.close()


def address(index: int) -> str:
    """The address of the host with this rank."""
    return f"10.78.0.{11 + index}"


def _switch() -> ChildProcess:
    return shell.start_child(["unshare", "--net", "sh", "-c", "echo ready; exec cat >/dev/null"], {"PATH": os.defpath})


class _Relay(socketserver.ThreadingTCPServer):
    """Listens in a host network and forwards to a port of this machine."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with socket.create_connection(("127.0.0.1", port)) as there:
                    back = threading.Thread(target=_copy, args=[there, self.request], daemon=True)
                    back.start()
                    _copy(self.request, there)
                    back.join()

        super().__init__((CLOUD, 0), Connection)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):  # the other side has closed
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
