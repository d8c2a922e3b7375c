"""Network namespaces for nodes and hosts: Linux, root.  No namespace has a name, so none outlives this process."""

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

# What making a node takes, tried in namespaces that vanish at once.
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


def ip(network_of: str, *lines: str) -> None:
    """Runs commands of `ip` in a network namespace."""
    shell.output_of(["nsenter", f"--net={network_of}", "ip", "-batch", "-"], "\n".join(lines))


def slow_down(network_of: str, device: str, rate: str) -> None:
    """Limits what `device` of a network namespace sends to `rate`, such as 20mbit."""
    # The bucket holds ten milliseconds of data, but at least one packet: up to 64 kB before the card splits it.
    number, unit = int(rate[:-4]), {"k": 10**3, "m": 10**6, "g": 10**9}[rate[-4]]
    bucket = max(80_000, number * unit // 800)
    shell.output_of(["nsenter", f"--net={network_of}", "tc", "qdisc", "replace", "dev", device, "root", "tbf",
               "rate", rate, "burst", str(bucket), "latency", "400ms"])  # fmt: skip


def in_network(pid: int, make: Callable[[], Result]) -> Result:
    """Calls `make` in the network of process `pid`, where its sockets and threads stay.  Returns its result."""

    def enter_and_make() -> Result:
        with Path(f"/proc/{pid}/ns/net").open() as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0):
                raise OSError(ctypes.get_errno(), "setns")
        return make()

    # In a thread of its own, as the namespace is a thread's.
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(enter_and_make).result()
