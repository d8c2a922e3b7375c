"""Connect the ranks of a job: the store, the process groups and the heartbeat."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from trainer.distributed import loopback
from trainer.distributed.failure import Failure, end_process, say
from trainer.distributed.heartbeat import Heartbeat, SharedState
from trainer.distributed.ranks import Ranks
from trainer.errors import MachineError
from trainer.outcome import Record

# Added on a GPU to the time limit of collectives on the hosts: for the heartbeat, and last for NCCL's watchdog, which
# kills the process without a message.
HEARTBEAT_MARGIN_S, NCCL_MARGIN_S = 20.0, 90.0
# Time limit for reading from the store why a collective failed.
ANSWER_WITHIN_S = 5.0
# Minimum time that a rank which gives up has to exit, for example to flush an experiment tracker.
LEAVE_WITHIN_S = 60.0
# How long beyond its limit joining may take: torch's own limits do not cover a store whose host is stopped.
JOIN_MARGIN_S = 5.0


Before = Callable[[SharedState], None]


@dataclass(frozen=True)
class Link:
    """The connections of one rank to the others.  control: gloo, so that the hosts agree without waiting for a GPU."""

    control: dist.ProcessGroup
    shared: SharedState
    heartbeat: Heartbeat
    failure: Failure


def join(
    ranks: Ranks,
    device: torch.device,
    timeout_s: float,
    record: Record,
    asked: Callable[[], bool] = lambda: False,
    before: Before | None = None,
) -> Link:
    """Connect to the other ranks, waiting at most timeout_s.  Raises MachineError if they do not connect.

    record, asked: see Failure; before: called once this rank reaches the shared state, before its first
    collective; what it raises ends the joining.
    """
    timeout = timedelta(seconds=timeout_s)
    try:
        with _ended_after(timeout_s + JOIN_MARGIN_S, _too_few(ranks, timeout_s)):
            store, ours = _stores(ranks, timeout)
        within = partial(SharedState, PrefixStore("toolkit", ours), ranks.rank, ranks.world_size)
        failure = Failure(ranks, within(ANSWER_WITHIN_S), timeout_s, record, asked)
        if before is not None:
            _call(before, within(timeout_s), failure)
        with _ended_after(timeout_s + JOIN_MARGIN_S, _too_few(ranks, timeout_s)):
            control = _groups(ranks, device, store, timeout_s)
    except (dist.DistError, RuntimeError, OSError) as error:
        raise MachineError(_why_not_joined(ranks, timeout_s, str(error))) from error
    limit_s = timeout_s + HEARTBEAT_MARGIN_S if device.type == "cuda" else float("inf")  # gloo itself keeps time
    shared = within(timeout_s)
    heartbeat = Heartbeat(shared, failure, limit_s, max(timeout_s, LEAVE_WITHIN_S))
    return Link(control, shared, heartbeat, failure)


def _call(before: Before, shared: SharedState, failure: Failure) -> None:
    try:
        before(shared)
    except MachineError:
        failure.wait_for_peers()
        raise


def _groups(ranks: Ranks, device: torch.device, store: Store, timeout_s: float) -> dist.ProcessGroup:
    """Start the default process group; return the one for collectives on the hosts."""
    timeout = timedelta(seconds=timeout_s)
    start = partial(dist.init_process_group, store=store, rank=ranks.rank, world_size=ranks.world_size)
    if device.type != "cuda":
        start("gloo", timeout=timeout)
        assert dist.group.WORLD is not None
        return dist.group.WORLD
    start("cpu:gloo,cuda:nccl", timeout=timedelta(seconds=timeout_s + NCCL_MARGIN_S))
    control: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=timeout)  # type: ignore[assignment]
    return control


def _stores(ranks: Ranks, timeout: timedelta) -> tuple[Store, Store]:
    """Two connections to the store on rank 0's node: for torch, and for SharedState.

    A connection handles one request at a time, and torch's may take long.
    """
    if ranks.world_size == 1:
        alone: Store = dist.HashStore()  # type: ignore[attr-defined]  # needs no port
        return alone, alone
    store = _meeting_place(ranks, timeout)
    ours = _connected(ranks, timeout)
    # Keeps out keys of an earlier attempt.
    attempt = f"attempt-{ranks.attempt}"
    return PrefixStore(attempt, store), PrefixStore(attempt, ours)


def _meeting_place(ranks: Ranks, timeout: timedelta) -> Store:
    """The store, served by rank 0 unless the launcher does; on one machine it listens on loopback only."""
    if ranks.nodes > 1 and not loopback.is_loopback(ranks.master_addr):
        address = f"tcp://{ranks.master_addr}:{ranks.master_port}"
        found: Store = next(iter(rendezvous(address, ranks.rank, ranks.world_size, timeout=timeout)))[0]
        return found
    if ranks.is_head and not ranks.store_is_launchers:
        address = ranks.master_addr if ranks.nodes > 1 else loopback.ADDRESS
        return loopback.serve_store(ranks.master_port, timeout, address)
    return _connected(ranks, timeout)


def _connected(ranks: Ranks, timeout: timedelta) -> Store:
    address = ranks.master_addr if ranks.nodes > 1 or ranks.store_is_launchers else loopback.ADDRESS
    store: Store = dist.TCPStore(  # type: ignore[attr-defined]
        address, ranks.master_port, timeout=timeout, wait_for_workers=False
    )
    return store


@contextmanager
def _ended_after(limit_s: float, sentence: str) -> Iterator[None]:
    """Exit with the message `sentence` if the block takes longer than limit_s."""

    def end() -> None:
        say(MachineError.code, sentence)
        end_process(MachineError.code)

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _why_not_joined(ranks: Ranks, timeout_s: float, problem: str) -> str:
    if "EADDRINUSE" in problem or "address already in use" in problem.lower():
        return f"port {ranks.master_port} is in use on {ranks.master_addr}; give another --master-port to torchrun."
    if "imed out" in problem or "timeout" in problem:
        return _too_few(ranks, timeout_s)
    where = f"{ranks.master_addr}:{ranks.master_port}"
    return f"rank {ranks.rank} could not join the others at {where}: {problem.splitlines()[0]}."


def _too_few(ranks: Ranks, timeout_s: float) -> str:
    return (
        f"rank {ranks.rank} met fewer than {ranks.world_size} ranks at {ranks.master_addr}:{ranks.master_port} "
        f"within {timeout_s:g} s; check that all were started and that nothing blocks the port."
    )
