"""A rehearsal on EC2: the account as infra/README.md makes it, nodes as namespaces or processes, what befalls them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from launch.rehearse.aws.ec2 import seed
from launch.rehearse.aws.ec2.account import Account
from launch.rehearse.aws.ec2.moto_patches import mended
from launch.rehearse.aws.server import Requests, Seen, first, served
from launch.rehearse.nodes.ec2 import namespaces, processes
from launch.rehearse.nodes.ec2.node import Machines, Node, Volume, World
from launch.rehearse.nodes.ec2.watcher import Life, Watcher
from launch.rehearse.stage.faults import Fault
from launch.rehearse.stage.scene import Asked
from trainer.errors import SettingsError

NETWORK, GATEWAY, PORT = "172.31.0.0/16", "172.31.255.254", 5000  # moto's default VPC, and its last address
HOST_FAILED = "Server.InternalError: Internal error"
SPOT_TAKEN = "Server.SpotInstanceTermination: Spot instance termination"
NOTICE_S = 120.0


@contextmanager
def opened(asked: Asked, folder: Path, requests: Requests) -> Iterator[Ec2]:
    """EC2, and nothing left of it afterwards."""
    seed.check(asked)
    account = Account(asked.region)
    with ExitStack() as stack:
        stack.enter_context(mended(account.rules))
        seed.fill(account, asked)
        machines = stack.enter_context(_machines(folder))
        account.rules.address = machines.address
        port = inside = stack.enter_context(served(requests))
        if machines.gateway != processes.LOCALHOST:
            inside = stack.enter_context(served(requests, machines.gateway, PORT, machines.place))
        world = World(f"http://{machines.gateway}:{inside}")
        data = _data(asked, folder, makes_images=machines.kind != processes.Processes.kind)
        shared = asked.options.get("data_volume") == "multi-attach"
        watcher = Watcher(account, machines, world, asked.options.get("nodes") or 1, data, awaits_volume=shared)
        scene = Ec2(asked, account, machines, watcher, f"http://{processes.LOCALHOST}:{port}")
        stack.callback(scene.close)
        yield scene


@dataclass
class Ec2:
    """See launch.rehearse.stage.scene.Scene."""

    asked: Asked
    account: Account
    machines: Machines
    watcher: Watcher
    endpoint: str
    taken: list[tuple[float, Life]] = field(default_factory=list)  # nodes that EC2 takes back, and when
    full: list[Node] = field(default_factory=list)  # nodes without room on their disks

    @property
    def nodes(self) -> str:
        return self.machines.kind

    @property
    def differences(self) -> Sequence[str]:
        return self.machines.differences

    @property
    def lives(self) -> Mapping[str, Life]:
        return self.watcher.lives

    @property
    def trouble(self) -> str:
        return self.watcher.trouble

    def watch(self, tell: Callable[[], None], give_up: Callable[[str], None]) -> None:
        def look() -> None:
            self._take_back()
            for node in list(self.full):
                if node.is_on:
                    namespaces.fill_disk(node)  # again: what was removed meanwhile must not make room
            tell()

        self.watcher.watch(look, give_up)

    def close(self) -> None:
        self.watcher.close()

    def ranks(self) -> Mapping[str, int]:
        cluster = self.account.s3(f"jobs/{self.asked.job}/cluster.json", self.asked.bucket) or {"nodes": ()}
        return {row["instance"]: row["rank"] for row in cluster["nodes"]}

    def set_up(self, fault: Fault) -> str | None:
        match fault.kind:
            case "no-capacity":
                zone = self.account.region + fault.where.removeprefix("zone-")
                if zone not in (known := seed.zones(self.account)):
                    raise SettingsError(f"--inject {fault}: {self.account.region} has {', '.join(known)}.")
                self.account.rules.capacity[zone] = 0
                return f"{zone} has no machines"
            case "spot-notice" if not self.asked.options.get("spot"):
                raise SettingsError(f"--inject {fault}: AWS gives spot nodes notice, and no others; add --spot.")
            case "disk-full":
                self._need_namespaces(fault, "a node a disk of its own")
                self.watcher.world = replace(self.watcher.world, has_own_disk=True)
            case "slow-network":
                network = self._need_namespaces(fault, "nodes a network of their own")
                if why := network.why_not_slow():
                    raise SettingsError(f"--inject {fault}: this machine {why}.")
                self.watcher.world = replace(self.watcher.world, rate=fault.where)
                return f"every node sends and gets {fault.where} at most"
        return None

    def _need_namespaces(self, fault: Fault, what: str) -> namespaces.Network:
        if not isinstance(self.machines, namespaces.Network):
            why = namespaces.why_not_here()
            raise SettingsError(f"--inject {fault}: to give {what}, a rehearsal {why}; here nodes are processes.")
        return self.machines

    def strike(self, fault: Fault) -> str | None:
        on = [life for life in self.lives.values() if life.ended is None]
        if not on:
            return None
        if fault.kind == "disk-full":
            ranks = self.ranks()
            head = min(on, key=lambda life: ranks.get(life.name, len(on)))
            namespaces.fill_disk(head.node)
            self.full.append(head.node)
            return f"{head.instance} has no room left on its disk"
        last = on[-1]
        if fault.kind == "node-dies":
            last.node.pull_the_plug()
            self.account.kill(last.instance, HOST_FAILED)
            return f"{last.instance} is dead"
        if last.node.imds is None:
            return None
        last.node.imds.give_spot_notice()
        self.taken.append((time.monotonic() + NOTICE_S, last))
        return f"{last.instance} has two minutes"

    def mend(self) -> str | None:
        if not self.full:
            return None
        self.full.clear()
        return "there is room on the disk again"

    def starts(self, seen: Sequence[Seen]) -> Mapping[str, float | None]:
        exits = [s.at for s in seen if not s.by_launcher and s.operation == "PutObject" and "/exits/" in s.path]
        return {
            "provision": first(seen, "PutObject"),
            "boot": min((life.began for life in self.lives.values()), default=None),
            "rendezvous": first(seen, "CreateLogStream", by_launcher=False),
            "tear down": max(exits, default=first(seen, "TerminateInstances")),
        }

    def _take_back(self) -> None:
        for due, life in list(self.taken):
            if time.monotonic() > due and life.ended is None:
                self.taken.remove((due, life))
                self.account.kill(life.instance, SPOT_TAKEN)


@contextmanager
def _machines(folder: Path) -> Iterator[Machines]:
    """Namespaces where they can be made, else processes."""
    if namespaces.why_not_here() is None:
        with namespaces.network(folder / "nodes", f"{GATEWAY}/16") as network:
            yield network
    elif why := processes.why_not_here():
        raise SettingsError(f"nodes cannot be rehearsed on this machine: it {why}.")
    else:
        with processes.processes(folder / "nodes") as made:
            yield made


def _data(asked: Asked, folder: Path, makes_images: bool) -> Callable[[str], Volume | None]:
    """Makes the data volumes of nodes."""

    def volume(name: str) -> Volume | None:
        if asked.data is None:
            return None
        if not makes_images:
            return Volume(name, asked.data.resolve())
        image = folder / "data.img"
        if not image.exists():
            size = sum(file.stat().st_size for file in asked.data.rglob("*") if file.is_file())
            Volume.of(asked.data, name, image, mib=32 + 2 * (size >> 20))
        return Volume(name, image)

    return volume
