"""A network of SageMaker instances on this machine, each a host with its own /opt/ml.  Linux, root.

As on AWS they have names that resolve; they reach only each other and what is served at GATEWAY.  A host ends with the
container in it, and the network with this process.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from launch.core.shell import ChildProcess
from launch.rehearse.nodes.network import Bridge, why_no_namespaces

GATEWAY = "10.78.0.1"  # where hosts see AWS
NEEDED = ("bash", "ip", "nsenter", "unshare")

# Becomes the container in a separate host, once the network is ready.  $disk: a folder of its /opt/ml that gets a
# separate file system, which the caller can fill.
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


@dataclass
class HostNetwork:
    """A bridge with hosts."""

    folder: Path  # names, addresses and process IDs of the hosts
    names: Sequence[str]
    bridge: Bridge
    rate: str = ""  # limit for each to send and receive, such as 200mbit

    @property
    def ml(self) -> Path:
        """Where each host sees its own base."""
        return self.folder / "ml"

    def command(self, name: str, base: Path, disk: str) -> list[str]:
        """The command that makes the host `name` and then runs, in it, the command that follows."""
        box = [str(base), str(self.ml), str(self.folder), name, disk]
        return ["unshare", "--net", "--mount", "--uts", "bash", "-c", POWER_ON, "bash", *box]

    def connect(self, name: str, process: ChildProcess) -> None:
        """Connect the host in which `process` runs."""
        (self.folder / f"{name}.pid").write_text(str(process.pid))
        self.bridge.connect(process.pid, address(self.names.index(name)), self.rate)


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
    with closing(Bridge(f"{GATEWAY}/24")) as bridge:
        yield HostNetwork(folder, names, bridge, rate)


def address(index: int) -> str:
    """The address of the host with this rank."""
    return f"10.78.0.{11 + index}"
