"""Makes a node of each instance that appears in the embedded AWS, and reports its end back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from launch.core import catalog, price
from launch.rehearse.aws.ec2.account import Ec2Account
from launch.rehearse.aws.ec2.instances import end
from launch.rehearse.aws.ec2.network import reached
from launch.rehearse.aws.pricing import multiple
from launch.rehearse.nodes.ec2.node import SICK_DMESG, Machines, Node, NodeSetup, Volume, share_of_cores

POLL_S = 0.1
SHUT_DOWN = "Client.InstanceInitiatedShutdown: Instance initiated shutdown"
LIVE, ENDING = ("pending", "running"), ("shutting-down", "terminated")


@dataclass
class InstanceRun:
    """One node from its start to its end: see launch.rehearse.backend.NodeRun."""

    instance: str
    type: str
    zone: str
    address: str
    node: Node
    gib: int  # of its volumes
    slot: int  # its place among the nodes that run at the same time
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    how: str = ""
    has_trained: bool = False

    @property
    def state(self) -> str:
        """boots, trains, uploads (the results), or off."""
        if self.ended is not None:
            return "off"
        if self.node.has_container:
            self.has_trained = True
            return "trains"
        return "uploads" if self.has_trained else "boots"

    @property
    def name(self) -> str:
        return self.instance

    @property
    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - self.began

    @property
    def usd_per_hour(self) -> float:
        instance = catalog.load().get(self.type)
        in_us_east_1 = (instance.usd_per_hour if instance else 0.0) + price.usd_per_hour(price.Volume(self.gib))
        return in_us_east_1 * multiple(self.zone[:-1])


@dataclass
class Watcher:
    """Makes the nodes of an account until it is closed."""

    account: Ec2Account
    machines: Machines
    setup: NodeSetup
    nodes: int  # how many run at the same time and share this machine's cores
    data: Callable[[str], Volume | None] = lambda volume: None  # the content of a volume
    awaits_volume: bool = False  # nodes get their volume after RunInstances, and start once they have it
    regions: tuple[str, ...] = ()  # where nodes may appear, in one at a time
    sick: int = 0  # how many nodes, from the last of the first ones on, get a broken GPU
    node_runs: dict[str, InstanceRun] = field(default_factory=dict)
    trouble: str = ""
    _closing: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def watch(self, on_poll: Callable[[], None], on_trouble: Callable[[str], None]) -> None:
        """Watches from now on.  on_poll: called after each poll; on_trouble: called if this machine makes no node."""
        self._thread = threading.Thread(target=self._watch, args=[on_poll, on_trouble], name="watcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops watching and ends all nodes."""
        self._closing.set()
        if self._thread:
            self._thread.join()
        for run in self.node_runs.values():
            self._end(run, "end of the rehearsal")

    def _watch(self, on_poll: Callable[[], None], on_trouble: Callable[[str], None]) -> None:
        while not self._closing.wait(POLL_S):
            try:
                self._poll()
                on_poll()
            except Exception as error:  # the launcher would wait for its nodes for a quarter of an hour
                self.trouble = f"{type(error).__name__}: {error}"
                on_trouble(self.trouble)
                return

    def _poll(self) -> None:
        self._follow_job()
        for instance in list(self.account.ec2.all_instances()):
            run = self.node_runs.get(instance.id)
            if run is None and instance.state in LIVE and self._is_complete(instance):
                self.node_runs[instance.id] = self._begin(instance)
            elif run is not None and instance.state in ENDING:
                self._end(run, instance.state_reason.code if instance.state_reason else "")
            elif run is not None and not run.node.is_on:
                end(self.account.rules, instance, SHUT_DOWN)
                self._end(run, SHUT_DOWN.split(":")[0])

    def _follow_job(self) -> None:
        """Switches to the region that has nodes, once the one before has none."""
        here = self.account.region
        for region in sorted(self.regions, key=lambda region: region != here):
            self.account.region = region
            if any(instance.state != "terminated" for instance in list(self.account.ec2.all_instances())):
                return
        self.account.region = here

    def _begin(self, instance: Any) -> InstanceRun:
        volumes = [self.account.ec2.volumes[m.volume_id] for m in instance.block_device_mapping.values()]
        data = [self.data(name) for name in self._volumes(instance)]
        used = {run.slot for run in self.node_runs.values() if run.ended is None}
        slot = next(number for number in range(len(used) + 1) if number not in used)
        reaches = reached(self.account.ec2, instance)
        setup = replace(self.setup, cores=share_of_cores(slot, self.nodes), reaches=reaches)
        if self.nodes - 1 <= len(self.node_runs) < self.nodes - 1 + self.sick:
            setup = replace(setup, programs={**setup.programs, "dmesg": SICK_DMESG})
        node = self.machines.power_on(
            instance.id, instance.private_ip, instance.user_data.decode(), setup, data[0] if data else None
        )
        return InstanceRun(
            instance.id, instance.instance_type, instance.placement.zone, instance.private_ip, node,
            sum(volume.size for volume in volumes), slot,
        )  # fmt: skip

    def _is_complete(self, instance: Any) -> bool:
        """Whether the instance has everything that its node needs from the start."""
        return getattr(instance, "is_complete", False) and (not self.awaits_volume or bool(self._volumes(instance)))

    def _volumes(self, instance: Any) -> list[str]:
        """The IDs of its volumes with data."""
        mapped = [self.account.ec2.volumes[m.volume_id] for m in list(instance.block_device_mapping.values())]
        return [volume.id for volume in mapped if volume.snapshot_id]

    def _end(self, run: InstanceRun, how: str) -> None:
        if run.ended is None:
            run.node.power_off()
            run.ended, run.how = time.monotonic(), how
