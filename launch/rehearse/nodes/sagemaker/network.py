"""A network of SageMaker's instances on this machine, each a host of its own with its own /opt/ml.  Linux, root.

As on AWS they have names that resolve, and reach nothing else but what is exposed to them.  A host lives as long as
the container in it, and the network as long as we do.
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

CLOUD = "10.78.0.1"  # where the hosts of a network see what is exposed to them
NEEDED = ("ip", "nsenter", "unshare")

# Becomes the container in a host of its own, once the network is there.  $disk: of its /opt/ml, what is to be on a
# small file system of its own; the caller can fill that up.
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
    """Why hosts cannot be made on this machine, or None."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)} (Debian: iproute2, util-linux)"
    if not Path("/etc/environment").exists():
        return "needs an /etc/environment to mount over (Debian: libpam-modules)"
    return why_no_namespaces()


def why_not_slow() -> str | None:
    """Why no network can be slowed down on this machine, or None."""
    if why := why_no_network():
        return why
    if shutil.which("tc") is None:
        return "needs tc (Debian: iproute2)"
    switch = _switch()
    try:
        slow_down(f"/proc/{switch.pid}/ns/net", "lo", "100gbit")
    except MachineError as error:
        return f"needs a kernel with token buckets (sch_tbf): {error}"
    finally:
        switch.let_go()
    return None


@dataclass
class Network:
    """ml: where each host sees its own base; folder: names, addresses and signs of life; rate: what each sends and gets
    at most, such as 200mbit.
    """

    folder: Path
    names: Sequence[str]
    switch: ChildProcess
    rate: str = ""
    servers: list[socketserver.BaseServer] = field(default_factory=list)

    @property
    def ml(self) -> Path:
        return self.folder / "ml"

    def command(self, name: str, base: Path, disk: str) -> list[str]:
        """What makes the host `name` and becomes, in it, the command that follows."""
        box = [str(base), str(self.ml), str(self.folder), name, disk]
        return ["unshare", "--net", "--mount", "--uts", "bash", "-c", POWER_ON, "bash", *box]

    def expose(self, port: int) -> str:
        """A URL at which the hosts reach what listens at 127.0.0.1:port on this machine, such as moto."""
        server = in_network(self.switch.pid, lambda: _Relay(port))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.servers.append(server)
        return f"http://{CLOUD}:{server.server_address[1]}"

    def plug_in(self, name: str, process: ChildProcess) -> None:
        """Connects the host that `process` is in."""
        index, bridge, inside = self.names.index(name), self._bridge, f"/proc/{process.pid}/ns/net"
        (self.folder / f"{name}.pid").write_text(str(process.pid))
        ip(bridge, f"link add port{index} type veth peer name eth0 netns {process.pid}",
           f"link set port{index} master bridge up")  # fmt: skip
        ip(inside, "link set lo up", f"addr add {address(index)}/24 dev eth0", "link set eth0 up")
        if self.rate:  # what a host sends is held back at its own end, what it gets at the bridge's
            slow_down(inside, "eth0", self.rate)
            slow_down(bridge, f"port{index}", self.rate)

    @property
    def _bridge(self) -> str:
        return f"/proc/{self.switch.pid}/ns/net"


@contextmanager
def network(folder: Path, names: Sequence[str], rate: str = "") -> Iterator[Network]:
    """A network for hosts with these names, in rank order.  It goes with its hosts."""
    folder.mkdir(parents=True)
    (folder / "ml").mkdir()
    # The second, because torch asks for the names of addresses that it sees as IPv6.
    known = "".join(f"{address(i)} {name}\n::ffff:{address(i)} {name}.internal\n" for i, name in enumerate(names))
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{known}")
    for name in names:
        (folder / f"{name}.environment").touch()
    switch = _switch()
    made = Network(folder, names, switch, rate)
    try:
        # With an address of its own: otherwise it has one of its ports', and is out of reach when that node goes.
        ip(f"/proc/{switch.pid}/ns/net", "link set lo up", "link add bridge address 02:00:00:00:00:01 type bridge",
           f"addr add {CLOUD}/24 dev bridge", "link set bridge up")  # fmt: skip
        yield made
    finally:
        for server in made.servers:
            server.shutdown()
            server.server_close()
        switch.let_go()


def address(index: int) -> str:
    """Of the host at this place among the names."""
    return f"10.78.0.{11 + index}"


def _switch() -> ChildProcess:
    return shell.start_child(["unshare", "--net", "sh", "-c", "echo ready; exec cat >/dev/null"], {"PATH": os.defpath})


class _Relay(socketserver.ThreadingTCPServer):
    """Listens in a network and passes on to a port of this machine: threads stay where they began."""

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
    with suppress(OSError):  # the other side has gone
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
