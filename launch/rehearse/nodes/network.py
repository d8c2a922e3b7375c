"""Networks of their own for nodes and hosts, on Linux and as root: no namespace has a name that could outlive us."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from launch.core import shell
from trainer.errors import MachineError

Result = TypeVar("Result")

# What building a node takes, in namespaces that go at once.
TRY = """
set -e
ip link add bridge type bridge
mount -t tmpfs tmpfs /mnt
losetup --find >/dev/null
"""


def why_no_namespaces() -> str | None:
    """Why this process cannot make them, or None."""
    if os.geteuid() != 0:
        return "needs root, for namespaces and mounts"
    try:  # root of a container may lack the capabilities for it
        shell.output_of(["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "sh", "-c", TRY])
    except MachineError as error:
        return f"needs namespaces, mounts and loop devices ({error})"
    return None


def ip(network_of: str, *lines: str) -> None:
    """Runs ip's commands in a network namespace."""
    shell.output_of(["nsenter", f"--net={network_of}", "ip", "-batch", "-"], "\n".join(lines))


def slow_down(network_of: str, device: str, rate: str) -> None:
    """Lets `device` of a network namespace send no more than `rate`, such as 20mbit."""
    # The bucket holds ten milliseconds, but at least one packet, which is up to 64 kB before the card cuts it.
    number, unit = int(rate[:-4]), {"k": 10**3, "m": 10**6, "g": 10**9}[rate[-4]]
    bucket = max(80_000, number * unit // 800)
    shell.output_of(["nsenter", f"--net={network_of}", "tc", "qdisc", "replace", "dev", device, "root", "tbf",
               "rate", rate, "burst", str(bucket), "latency", "400ms"])  # fmt: skip


def in_network(pid: int, make: Callable[[], Result]) -> Result:
    """What `make` returns in the network of process `pid`: its sockets and threads stay there."""

    def enter_and_make() -> Result:
        with Path(f"/proc/{pid}/ns/net").open() as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0):
                raise OSError(ctypes.get_errno(), "setns")
        return make()

    # A thread, for only it changes its network.
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(enter_and_make).result()
