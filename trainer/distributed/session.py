"""The ranks of a job talking to each other.  session() owns init and destroy; nothing else calls either."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from trainer.contract import Exit
from trainer.distributed.heartbeat import LEFT, Heartbeat, end_process
from trainer.distributed.ranks import Ranks
from trainer.errors import MachineError, TrainerError, not_written
from trainer.outcome import Record, no_record

Result = TypeVar("Result")

# Who waits for whom on a GPU: first the hosts' own meetings, then the heartbeat, and NCCL's watchdog last,
# which ends the process without a word.
HEARTBEAT_MARGIN_S, NCCL_MARGIN_S = 20.0, 90.0
# While one rank prepares data for its node, the others make sure that it lives.
CHECK_EVERY_S = 10.0
# The store's key for why a rank has ended the training.
REASON = "reason"
# How long rank 0 keeps the store open for ranks that have not yet seen that the training failed.
SEE_OFF_S = 10.0
# How long one that was left behind lets the other leave first: mpirun and torchrun take that for the cause.
LEAVE_FIRST_S = 2.0


@dataclass(frozen=True)
class Session:
    """This rank's connection to the others.  Without a process group every call returns at once."""

    ranks: Ranks
    device: torch.device
    timeout_s: float
    store: Store | None = None
    control: dist.ProcessGroup | None = None  # gloo: the hosts agree without waiting for a GPU
    heartbeat: Heartbeat | None = None
    record: Record = no_record
    _meetings: Iterator[int] = field(default_factory=itertools.count)

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

        It may take longer than timeout_s.  A TrainerError of any first rank is raised on all ranks, so
        that nobody waits for ever.  Collective.
        """
        first = self.ranks.local_rank == 0
        result, problem = _attempt(action) if first else (None, None)
        self._wait_for_all()
        self._raise_together(problem)
        if not first:
            result, problem = _attempt(action)
        self._wait_for_all()
        self._raise_together(problem)
        return result  # type: ignore[return-value]

    def _wait_for_all(self) -> None:
        """Returns once every rank is here, however long one takes, as long as it lives."""
        if self.store is None or self.heartbeat is None:
            return
        place, check_at = f"meeting/{next(self._meetings)}", time.monotonic() + CHECK_EVERY_S
        self.store.add(place, 1)
        while self.store.add(place, 0) < self.ranks.world_size:
            time.sleep(0.05)  # a store can be waited on for a key, not for a count or a death
            if time.monotonic() > check_at:
                if lost := self.heartbeat.lost():
                    raise MachineError(f"{named(lost, self.ranks.world_size)} died while the data was prepared.")
                check_at = time.monotonic() + CHECK_EVERY_S

    def _raise_together(self, problem: TrainerError | None) -> None:
        for rank, raised in enumerate(self.gather(problem)):
            if raised is not None:
                # Who met it tells it: otherwise a full disk would be told by a node that has room.
                raised.is_mine_to_tell = rank == self.ranks.rank
                raise raised

    def moved(self) -> None:
        """Tells the others that this rank's training goes on."""
        if self.heartbeat:
            self.heartbeat.moved()

    def leave(self) -> None:
        """This rank ends by itself, in its own time: it waits for nobody who may have left."""
        if self.heartbeat:
            self.heartbeat.leave()

    def may_report(self) -> bool:
        """True for the first rank that asks: one rank speaks for all of them."""
        if self.store is None:
            return True
        try:
            return int(self.store.add("reported", 1)) == 1
        except RuntimeError:  # the store's host is gone with its rank
            return True

    def explain(self, code: int, reason: str) -> None:
        """Leaves the reason why this rank ends the training for the others to read; the first one counts."""
        if self.store is not None:
            with suppress(RuntimeError):  # the store went with its host
                self.store.compare_set(REASON, "", json.dumps([int(code), reason]))

    def explanation(self) -> tuple[int, str] | None:
        """The exit code and the reason that another rank has left, if any."""
        if self.store is None:
            return None
        try:
            if not self.store.check([REASON]):
                return None
            code, reason = json.loads(self.store.get(REASON))
        except RuntimeError:
            return None
        return code, reason

    def lost(self) -> list[int]:
        """The ranks that died or hang, in so far as this one can hear."""
        assert self.heartbeat is not None
        try:
            return self.heartbeat.lost()
        except RuntimeError:
            return [0]  # only rank 0's process, or its node, can take the store with it

    def see_off(self, lost: Sequence[int]) -> None:
        """Leaves a failed training.  The store lives with rank 0, which waits until all but the `lost` have left:
        one that cannot ask any more would take rank 0 for the cause, and say so.
        """
        if self.store is None:
            return
        self.leave()
        with suppress(RuntimeError):  # it went with its host
            self.store.add(LEFT, 1)
            if not self.ranks.is_head:
                return
            until, living = time.monotonic() + SEE_OFF_S, self.ranks.world_size - len(lost)
            while self.store.add(LEFT, 0) < living and time.monotonic() < until:
                time.sleep(0.05)  # a store can be waited on for a key, not for a count


def why_failed(problem: str, lost: list[int], world: int, timeout_s: float) -> str:
    """A sentence about a collective that failed with `problem`: which of the `world` ranks are lost, if any."""
    if not lost:
        return f"the {world} ranks lost touch though all still run ({problem.splitlines()[0]}); look at the network"
    return f"{named(lost, world)} died or hung (no answer; limit {timeout_s:g} s)"


def named(lost: list[int], world_size: int) -> str:
    """[1, 2] of 4 -> 'ranks 1, 2 of 4'."""
    return f"rank{'s' if len(lost) > 1 else ''} {', '.join(map(str, lost))} of {world_size}"


def _attempt(action: Callable[[], Result]) -> tuple[Result | None, TrainerError | None]:
    try:
        return action(), None
    except TrainerError as error:
        return None, error
    except OSError as error:
        return None, not_written(error, f"{error.filename or 'a file'}: {error.strerror or error}.")


@contextmanager
def session(
    ranks: Ranks,
    device: torch.device,
    timeout_s: float,
    *,
    connect: bool,
    record: Record = no_record,
) -> Iterator[Session]:
    """Connects this rank to the others for as long as the block runs.

    Raises MachineError where the ranks do not find each other, and turns a collective that failed
    inside the block into a MachineError naming the lost ranks.
    record: called where another rank's reason for the failure is known, or where no exception will leave the block.
    """
    if not connect:
        yield Session(ranks, device, timeout_s)
        return
    joined = _join(ranks, device, timeout_s, record)
    assert joined.heartbeat is not None
    failed, lost = True, list[int]()
    try:
        yield joined
        # Without a last meeting one rank may close its sockets while another still reads (gloo aborts).
        joined.barrier()
        failed = False
        # Nor may rank 0 leave, with the store, while another's heartbeat still asks it (torch complains on stderr).
        joined.heartbeat.stop()
        with suppress(RuntimeError):  # the training is done: a rank that dies now has lost nothing
            joined.barrier()
    except Exception as error:
        joined.heartbeat.rest()
        if isinstance(error, RuntimeError) and _is_communication(error):
            lost = joined.lost()
            raise _lost_touch(joined, lost, error) from error
        _explain(joined, error)
        raise
    finally:
        # NCCL would wait for its last operation, which will never end; the process is about to.
        if dist.is_initialized() and not (failed and device.type == "cuda"):
            dist.destroy_process_group()
        if failed:
            joined.see_off(lost)
        joined.heartbeat.stop()


def _explain(joined: Session, error: Exception) -> None:
    """Leaves the reason of this rank's own failure for the others, and settles which rank reports it."""
    if isinstance(error, TrainerError):
        error.is_mine_to_tell = error.is_mine_to_tell is not False and joined.may_report()
        if error.is_mine_to_tell:
            joined.explain(error.code, str(error))
    else:
        joined.explain(Exit.BUG, f"{type(error).__name__}: {error}")


def _lost_touch(joined: Session, lost: list[int], error: RuntimeError) -> MachineError:
    """The error of a rank whose collective failed because others, `lost`, have left."""
    why = why_failed(str(error), lost, joined.ranks.world_size, joined.timeout_s)
    raised = MachineError(f"{why}; start again to resume from the last checkpoint.")
    raised.is_mine_to_tell = joined.may_report()
    if explanation := joined.explanation():
        joined.record(*explanation)
    return raised


def _join(ranks: Ranks, device: torch.device, timeout_s: float, record: Record) -> Session:
    timeout = timedelta(seconds=timeout_s)
    start = partial(dist.init_process_group, rank=ranks.rank, world_size=ranks.world_size)
    try:
        store = _store(ranks, timeout)
        if device.type == "cuda":
            start("cpu:gloo,cuda:nccl", store=store, timeout=timedelta(seconds=timeout_s + NCCL_MARGIN_S))
            control: dist.ProcessGroup | None = dist.new_group(backend="gloo", timeout=timeout)  # type: ignore[assignment]
        else:
            start("gloo", store=store, timeout=timeout)
            control = dist.group.WORLD
    except (dist.DistError, RuntimeError) as error:
        raise MachineError(_why_not_joined(ranks, timeout_s, str(error))) from error
    shared = PrefixStore("toolkit", store)
    joined = Session(ranks, device, timeout_s, shared, control, record=record)
    limit_s = timeout_s + HEARTBEAT_MARGIN_S if device.type == "cuda" else float("inf")  # gloo itself keeps time
    beat = Heartbeat(
        shared,
        ranks.rank,
        ranks.world_size,
        limit_s,
        lambda lost: _end_hung_process(whole, lost),
        partial(_end_left_behind, joined),
    )
    whole = replace(joined, heartbeat=beat)
    return whole


def _store(ranks: Ranks, timeout: timedelta) -> Store:
    """Where the ranks leave notes for each other; on rank 0's node."""
    if ranks.world_size == 1:
        alone: Store = dist.HashStore()  # type: ignore[attr-defined]  # needs no port
        return alone
    address = f"tcp://{ranks.master_addr}:{ranks.master_port}"
    store: Store = next(iter(rendezvous(address, ranks.rank, ranks.world_size, timeout=timeout)))[0]
    # What ranks of an earlier attempt left there would be taken for this one's.
    return PrefixStore(f"attempt-{ranks.attempt}", store)


def _end_hung_process(joined: Session, lost: list[int]) -> None:
    """Called by the heartbeat when the main thread waits for a GPU that waits for a lost rank."""
    who = named(lost, joined.ranks.world_size) if lost else "some rank"
    sentence = f"{who} died or hung (no answer; limit {joined.timeout_s:g} s); start again to resume."
    joined.record(*(joined.explanation() or (Exit.MACHINE, sentence)))
    mine = joined.may_report()
    joined.see_off(lost)
    end_process(Exit.MACHINE, sentence if mine else None)


def _end_left_behind(joined: Session) -> None:
    """Called by the heartbeat when another rank has left a failed training and the main thread still waits for it."""
    joined.record(*(joined.explanation() or (Exit.MACHINE, "another rank ended the training; its output says why.")))
    assert joined.store is not None
    with suppress(RuntimeError):  # the store went with its host
        joined.store.add(LEFT, 1)
    time.sleep(LEAVE_FIRST_S)
    end_process(Exit.MACHINE, None)


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
