"""Turns the instances of the embedded AWS into nodes as they appear, and gives each one's state back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from launch.core import catalog, price
from launch.rehearse.aws.ec2.account import Account
from launch.rehearse.aws.ec2.instances import end
from launch.rehearse.nodes.ec2.node import Machines, Node, Volume, World, share_of_cores

LOOK_EVERY_S = 0.1
SHUT_DOWN = "Client.InstanceInitiatedShutdown: Instance initiated shutdown"
LIVE, ENDING = ("pending", "running"), ("shutting-down", "terminated")


@dataclass
class Life:
    """One node from its start to its end, by the monotonic clock, in s."""

    instance: str
    type: str
    zone: str
    address: str
    node: Node
    gib: int  # of its volumes
    slot: int  # among the nodes that are on at a time
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    how: str = ""  # it ended
    has_trained: bool = False

    @property
    def state(self) -> str:
        """boots, trains, uploads (what a training left), or off."""
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
        known = catalog.load().get(self.type)
        return (known.usd_per_hour if known else 0.0) + price.usd_per_hour(price.Volume(self.gib))


@dataclass
class Watcher:
    """Looks until it is closed.

    nodes: how many there are at a time, to share this machine's cores; data: what volumes from a snapshot hold;
    awaits_volume: nodes get theirs after their start, and what was attached later would not be seen in them.
    """

    account: Account
    machines: Machines
    world: World
    nodes: int
    data: Callable[[str], Volume | None] = lambda volume: None
    awaits_volume: bool = False
    lives: dict[str, Life] = field(default_factory=dict)
    trouble: str = ""
    _closing: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def watch(self, tell: Callable[[], None], give_up: Callable[[str], None]) -> None:
        """Looks from now on.  tell: is called after each look; give_up: when this machine makes no node, with why."""
        self._thread = threading.Thread(target=self._look_on, args=[tell, give_up], name="watcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Looks no more, and takes all nodes off."""
        self._closing.set()
        if self._thread:
            self._thread.join()
        for life in self.lives.values():
            self._take_off(life, "the rehearsal was over")

    def _look_on(self, tell: Callable[[], None], give_up: Callable[[str], None]) -> None:
        while not self._closing.wait(LOOK_EVERY_S):
            try:
                self._look()
                tell()
            except Exception as error:  # a launcher whose nodes never begin would wait for a quarter of an hour
                self.trouble = f"{type(error).__name__}: {error}"
                give_up(self.trouble)
                return

    def _look(self) -> None:
        for instance in list(self.account.ec2.all_instances()):
            life = self.lives.get(instance.id)
            if life is None and instance.state in LIVE and self._is_whole(instance):
                self.lives[instance.id] = self._begin(instance)
            elif life is not None and instance.state in ENDING:
                self._take_off(life, instance.state_reason.code if instance.state_reason else "")
            elif life is not None and not life.node.is_on:
                end(self.account.rules, instance, SHUT_DOWN)
                self._take_off(life, SHUT_DOWN.split(":")[0])

    def _begin(self, instance: Any) -> Life:
        volumes = [self.account.ec2.volumes[m.volume_id] for m in instance.block_device_mapping.values()]
        held = [self.data(name) for name in self._volumes(instance)]
        text = instance.user_data.decode()
        taken = {life.slot for life in self.lives.values() if life.ended is None}
        slot = next(number for number in range(len(taken) + 1) if number not in taken)
        world = replace(self.world, cores=share_of_cores(slot, self.nodes))
        node = self.machines.power_on(instance.id, instance.private_ip, text, world, next(iter(held), None))
        return Life(
            instance.id, instance.instance_type, instance.placement.zone, instance.private_ip, node,
            sum(volume.size for volume in volumes), slot,
        )  # fmt: skip

    def _is_whole(self, instance: Any) -> bool:
        """Whether all is there that the node is born with."""
        return getattr(instance, "is_whole", False) and (not self.awaits_volume or bool(self._volumes(instance)))

    def _volumes(self, instance: Any) -> list[str]:
        """Those with data."""
        mapped = [self.account.ec2.volumes[m.volume_id] for m in list(instance.block_device_mapping.values())]
        return [volume.id for volume in mapped if volume.snapshot_id]

    def _take_off(self, life: Life, how: str) -> None:
        if life.ended is None:
            life.node.pull_the_plug()
            life.ended, life.how = time.monotonic(), how
