"""The ranks of a job talking to each other.  session() owns init and destroy; nothing else calls either."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from trainer.errors import Interrupted, MachineError, TrainerError
from trainer.ranks import Ranks

Result = TypeVar("Result")

# How long a rank that saw a collective fail waits for the others to say that they saw it too.
GRACE_S = 3.0


@dataclass(frozen=True)
class Session:
    """This rank's connection to the others.  Without a process group every call returns at once."""

    ranks: Ranks
    device: torch.device
    timeout_s: float
    store: Store | None = None
    control: dist.ProcessGroup | None = None  # gloo: the hosts agree without waiting for a GPU

    @property
    def connected(self) -> bool:
        return self.store is not None

    def sum(self, values: Tensor) -> Tensor:
        """`values` summed over all ranks, in place, on the device.  Collective."""
        if self.connected:
            dist.all_reduce(values)
        return values

    def highest(self, values: list[float]) -> list[float]:
        """The largest of each value over all ranks.  Collective on the hosts; waits for no GPU."""
        if not self.connected:
            return values
        agreed = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(agreed, op=dist.ReduceOp.MAX, group=self.control)
        return [float(value) for value in agreed]

    def gather(self, value: Any) -> list[Any]:
        """Every rank's `value`, in rank order, on every rank.  Collective."""
        if not self.connected:
            return [value]
        gathered: list[Any] = [None] * self.ranks.world_size
        dist.all_gather_object(gathered, value, group=self.control)
        return gathered

    def broadcast(self, payload: bytes | None) -> bytes | None:
        """Rank 0's `payload` on every rank.  Collective."""
        if not self.connected:
            return payload
        size = int(self.highest([float(len(payload)) if payload is not None else -1.0])[0])
        if size < 0:
            return None
        data = torch.frombuffer(bytearray(payload or bytes(size)), dtype=torch.uint8)
        dist.broadcast(data, src=0, group=self.control)
        return data.numpy().tobytes()

    def barrier(self) -> None:
        """Waits until every rank is here.  Collective."""
        if self.connected:
            self.highest([0.0])

    def on_head(self, action: Callable[[], Result]) -> Result | None:
        """action() on rank 0, None elsewhere; a TrainerError of rank 0 is raised on all ranks.  Collective."""
        result, problem = _attempt(action) if self.ranks.is_head else (None, None)
        self._raise_together(problem)
        return result

    def once_per_node(self, action: Callable[[], Result]) -> Result:
        """action() on the first rank of each node, then on the others: they find what it left on disk.

        A TrainerError of any first rank is raised on all ranks, so that nobody waits for ever.  Collective.
        """
        first = self.ranks.local_rank == 0
        result, problem = _attempt(action) if first else (None, None)
        self._raise_together(problem)
        if not first:
            result, problem = _attempt(action)
        self._raise_together(problem)
        return result  # type: ignore[return-value]

    def _raise_together(self, problem: TrainerError | None) -> None:
        for raised in self.gather(problem):
            if raised is not None:
                raise raised

    def may_report(self) -> bool:
        """True for the first rank that asks: one rank speaks for all of them."""
        if self.store is None:
            return True
        try:
            return int(self.store.add("reported", 1)) == 1
        except RuntimeError:  # the store's host is gone with its rank
            return True

    def lost_ranks(self) -> str:
        """A sentence naming the ranks that stopped answering.  Call after a collective failed."""
        me, world = self.ranks.rank, self.ranks.world_size
        try:
            assert self.store is not None
            self.store.set(f"alive/{me}", f"{socket.gethostname()}, process {os.getpid()}")
            missing = _missing(self.store, [rank for rank in range(world) if rank != me])
        except (RuntimeError, dist.DistError):
            missing = [0]  # only rank 0's process, or its node, can take the store with it
        if not missing:
            return (
                f"the {world} ranks lost touch for over {self.timeout_s:g} s though all still run; look at the network"
            )
        names = f"rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
        return f"{names} of {world} died or hung (no answer; limit {self.timeout_s:g} s)"


def _attempt(action: Callable[[], Result]) -> tuple[Result | None, TrainerError | None]:
    try:
        return action(), None
    except TrainerError as error:
        return None, error


def _missing(store: Store, others: list[int]) -> list[int]:
    deadline = time.monotonic() + GRACE_S
    while True:
        missing = [rank for rank in others if not store.check([f"alive/{rank}"])]
        if not missing or time.monotonic() > deadline:
            return missing
        time.sleep(0.1)  # a store cannot be waited on for "any of these, or a deadline"


@contextmanager
def session(ranks: Ranks, device: torch.device, timeout_s: float, *, connect: bool) -> Iterator[Session]:
    """Connects this rank to the others for as long as the block runs.

    Raises MachineError where the ranks do not find each other, and turns a collective that failed
    inside the block into a MachineError naming the lost ranks.
    """
    if not connect:
        yield Session(ranks, device, timeout_s)
        return
    joined = _join(ranks, device, timeout_s)
    try:
        yield joined
        # Without a last meeting one rank may close its sockets while another still reads (gloo aborts).
        joined.barrier()
    except TrainerError as error:
        error.is_mine_to_tell = joined.may_report()
        if isinstance(error, Interrupted):
            # All left together; had the others ended by now, torchrun would end rank 0 before it has saved.
            with suppress(RuntimeError):
                joined.barrier()
        raise
    except RuntimeError as error:
        if not _is_communication(error):
            raise
        lost = MachineError(f"{joined.lost_ranks()}; start again to go on from the last checkpoint.")
        lost.is_mine_to_tell = joined.may_report()
        raise lost from error
    finally:
        _leave()


def _join(ranks: Ranks, device: torch.device, timeout_s: float) -> Session:
    timeout = timedelta(seconds=timeout_s)
    try:
        address = f"tcp://{ranks.master_addr}:{ranks.master_port}"
        store, _, _ = next(iter(rendezvous(address, ranks.rank, ranks.world_size, timeout=timeout)))
        if device.type == "cuda":
            # NCCL's own watchdog kills the process; the hosts' meetings must time out first and say who is missing.
            patient = timedelta(seconds=timeout_s + 60)
            dist.init_process_group(
                "cpu:gloo,cuda:nccl", store=store, rank=ranks.rank, world_size=ranks.world_size, timeout=patient
            )
            control: dist.ProcessGroup | None = dist.new_group(backend="gloo", timeout=timeout)  # type: ignore[assignment]
        else:
            dist.init_process_group("gloo", store=store, rank=ranks.rank, world_size=ranks.world_size, timeout=timeout)
            control = dist.group.WORLD
    except (dist.DistError, RuntimeError) as error:
        raise MachineError(_why_not_joined(ranks, timeout_s, str(error))) from error
    return Session(ranks, device, timeout_s, PrefixStore("toolkit", store), control)


def _why_not_joined(ranks: Ranks, timeout_s: float, problem: str) -> str:
    where = f"{ranks.master_addr}:{ranks.master_port}"
    if "EADDRINUSE" in problem or "address already in use" in problem:
        return f"port {ranks.master_port} is in use on {ranks.master_addr}; give another --master-port to torchrun."
    if "imed out" in problem or "timeout" in problem:
        return (
            f"rank {ranks.rank} met fewer than {ranks.world_size} ranks at {where} within {timeout_s:g} s; "
            "check that all were started and that nothing blocks the port."
        )
    return f"rank {ranks.rank} could not join the others at {where}: {problem.splitlines()[0]}."


def _is_communication(error: RuntimeError) -> bool:
    """gloo raises plain RuntimeErrors; its messages name the library or the socket."""
    text = str(error)
    return isinstance(error, dist.DistError) or any(word in text for word in ("gloo", "NCCL", "peer", "Connection"))


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
