"""Network namespaces for nodes and hosts: Linux, root.  No namespace has a name, so none outlives this process."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from launch.core import shell
from launch.core.shell import ChildProcess
from trainer.errors import MachineError

Result = TypeVar("Result")

# The commands that a node needs, tried in temporary namespaces.
TRY = """
set -e
ip link add bridge type bridge
mount -t tmpfs tmpfs /mnt
losetup --find >/dev/null
"""


def why_no_namespaces() -> str | None:
    """Why this process cannot make namespaces, as "needs ..."; None if it can."""
    if os.geteuid() != 0:
        return "needs root, for namespaces and mounts"
    try:  # root in a container may lack the capabilities
        shell.output_of(["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "sh", "-c", TRY])
    except MachineError as error:
        return f"needs namespaces, mounts and loop devices ({error})"
    return None


def why_not_slow() -> str | None:
    """Why networks cannot be slowed down on this machine, as "needs ..."; None if they can."""
    if shutil.which("tc") is None:
        return "needs tc; apt-get install iproute2"
    network = _empty_network()
    try:
        slow_down(_namespace(network.pid), "lo", "100gbit")
    except MachineError as error:
        return f"needs a kernel with token buckets (sch_tbf): {error}"
    finally:
        network.close()
    return None


class Bridge:
    """A bridge in a new network namespace, with this process at its address.  It vanishes with this process.

    address: with the network's width, such as 10.77.0.1/24.
    """

    def __init__(self, address: str) -> None:
        self.address, self._width = address.partition("/")[0], address.partition("/")[2]
        self._ports = 0
        self._network = _empty_network()
        # With its own MAC address: otherwise it takes that of a port, and is unreachable once that node ends.
        ip(_namespace(self.pid), "link set lo up", "link add bridge address 02:00:00:00:00:01 type bridge",
            f"addr add {address} dev bridge", "link set bridge up")  # fmt: skip

    @property
    def pid(self) -> int:
        """A process in the bridge's network."""
        return self._network.pid

    def connect(self, pid: int, address: str, rate: str = "", more: Sequence[str] = ()) -> None:
        """Connect the network of process `pid`.  rate: limit in each direction; more: further commands of `ip`."""
        self._ports += 1
        port, bridge, inside = f"port{self._ports}", _namespace(self.pid), _namespace(pid)
        ip(bridge, f"link add {port} type veth peer name eth0 netns {pid}", f"link set {port} master bridge up")
        ip(inside, "link set lo up", *more, f"addr add {address}/{self._width} dev eth0", "link set eth0 up")
        if rate:  # sending is limited at the node's end, receiving at the bridge's
            slow_down(inside, "eth0", rate)
            slow_down(bridge, port, rate)

    def call(self, make: Callable[[], Result]) -> Result:
        """Call `make` in the bridge's network, where its sockets stay; return its result."""
        return in_network(self.pid, make)

    def close(self) -> None:
        self._network.close()


def fill_disk(pid: int, disk: Path | int, mounted_at: str) -> None:
    """Fill a file system of process `pid`.  disk: as this process sees it.  Call again after files were removed."""
    with suppress(OSError, MachineError):  # the process has just ended, or the disk is fuller by now
        state = os.statvfs(disk)
        used = max(1, state.f_blocks - state.f_bfree) * state.f_frsize
        remount = ["mount", "-o", f"remount,size={used}", mounted_at]
        shell.output_of(["nsenter", f"--mount=/proc/{pid}/ns/mnt", *remount])


def _empty_network() -> ChildProcess:
    """A process that keeps a network namespace until it is closed, or this process ends."""
    return shell.start_child(["unshare", "--net", "sh", "-c", "echo ready; exec cat >/dev/null"], {"PATH": os.defpath})


def _namespace(pid: int) -> str:
    return f"/proc/{pid}/ns/net"


def ip(network: str, *lines: str) -> None:
    """Run commands of `ip` in a network namespace."""
    shell.output_of(["nsenter", f"--net={network}", "ip", "-batch", "-"], "\n".join(lines))


def slow_down(network: str, device: str, rate: str) -> None:
    """Limit what `device` of a network namespace sends to `rate`, such as 20mbit."""
    # The bucket holds ten milliseconds of data, but at least one packet: up to 64 kB before the card splits it.
    number, unit = int(rate[:-4]), {"k": 10**3, "m": 10**6, "g": 10**9}[rate[-4]]
    bucket = max(80_000, number * unit // 800)
    shell.output_of(["nsenter", f"--net={network}", "tc", "qdisc", "replace", "dev", device, "root", "tbf",
               "rate", rate, "burst", str(bucket), "latency", "400ms"])  # fmt: skip


def in_network(pid: int, make: Callable[[], Result]) -> Result:
    """Call `make` in the network of process `pid`, where its sockets and threads stay.  Return its result."""

    def enter_and_make() -> Result:
        with Path(f"/proc/{pid}/ns/net").open() as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0):
                raise OSError(ctypes.get_errno(), "setns")
        return make()

    # In a separate thread, as setns() changes the namespace of one thread.
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(enter_and_make).result()
