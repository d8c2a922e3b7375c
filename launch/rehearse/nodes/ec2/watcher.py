"""Start a node for each instance that appears in the embedded AWS, and report its end back."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from launch.core import catalog, price
from launch.rehearse.aws.ec2.account import Ec2Account
from launch.rehearse.aws.ec2.instances import end
from launch.rehearse.aws.ec2.network import reached
from launch.rehearse.aws.pricing import multiple
from launch.rehearse.backend import NodeRun
from launch.rehearse.nodes.ec2.node import SICK_DMESG, Machines, Node, NodeSetup, Volume, share_of_cores

GZIP = b"\x1f\x8b"

SHUT_DOWN = "Client.InstanceInitiatedShutdown: Instance initiated shutdown"
LIVE, ENDING = ("pending", "running"), ("shutting-down", "terminated")


@dataclass(kw_only=True)
class InstanceRun(NodeRun):
    """An instance, with its node."""

    node: Node
    slot: int  # its index among the nodes that run at the same time
    has_trained: bool = False

    @property
    def state(self) -> str:
        if self.ended is not None:
            return "off"
        if self.node.has_container:
            self.has_trained = True
            return "trains"
        return "uploads" if self.has_trained else "boots"


@dataclass
class Watcher:
    """Starts and ends the nodes of an account."""

    account: Ec2Account
    machines: Machines
    setup: NodeSetup
    nodes: int  # how many run at the same time and share this machine's cores
    data: Callable[[str], Volume | None] = lambda volume: None  # the content of a volume
    awaits_volume: bool = False  # nodes get their volume after RunInstances, and start once they have it
    regions: tuple[str, ...] = ()  # where nodes may appear, in one at a time
    sick: int = 0  # how many nodes, from the last of the first ones on, get a broken GPU
    node_runs: dict[str, InstanceRun] = field(default_factory=dict)

    def close(self) -> None:
        """End all nodes."""
        for run in self.node_runs.values():
            self._end(run, "end of the rehearsal")

    def poll(self) -> None:
        """Start a node for each new instance; end the nodes of ended instances, and instances whose node is off."""
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
        """Switch to the region that has nodes, once the one before has none."""
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
            instance.id, instance.private_ip, _script(instance.user_data), setup, data[0] if data else None
        )
        return InstanceRun(
            name=instance.id, type=instance.instance_type, zone=instance.placement.zone, address=instance.private_ip,
            usd_per_hour=_usd_per_hour(instance, sum(volume.size for volume in volumes)), node=node, slot=slot,
        )  # fmt: skip

    def _is_complete(self, instance: Any) -> bool:
        """Whether the instance has everything that its node needs to start."""
        return getattr(instance, "is_complete", False) and (not self.awaits_volume or bool(self._volumes(instance)))

    def _volumes(self, instance: Any) -> list[str]:
        """The IDs of its volumes with data."""
        mapped = [self.account.ec2.volumes[m.volume_id] for m in list(instance.block_device_mapping.values())]
        return [volume.id for volume in mapped if volume.snapshot_id]

    def _end(self, run: InstanceRun, how: str) -> None:
        if run.ended is None:
            run.node.power_off()
            run.end(how)


def _script(user_data: object) -> str:
    """The boot script, as cloud-init reads it.  user_data: in base64, as moto has it."""
    data = base64.b64decode(str(user_data))
    return (gzip.decompress(data) if data.startswith(GZIP) else data).decode()


def _usd_per_hour(instance: Any, gib: int) -> float:
    """Of an instance with so many GiB of volumes."""
    known = catalog.load().get(instance.instance_type)
    in_us_east_1 = (known.usd_per_hour if known else 0.0) + price.usd_per_hour(price.Volume(gib))
    return in_us_east_1 * multiple(instance.placement.zone[:-1])
