"""Communication between the ranks of a job.  session() opens and closes their connection."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from trainer.distributed.failure import listen, named
from trainer.distributed.heartbeat import NoAnswer, SharedState
from trainer.distributed.join import Before, Link, join
from trainer.distributed.ranks import Ranks
from trainer.distributed.stall import Place, StallWatch, watched
from trainer.errors import MachineError, TrainerError, error_with, is_full, not_writable, not_written, one_line
from trainer.outcome import Record, no_record
from trainer.state import plain

Result = TypeVar("Result")

# How often waiting ranks check that the rank preparing data for its node is alive.
CHECK_EVERY_S = 10.0


@dataclass(frozen=True)
class Session:
    """This rank's connection to the others.  Without a link every call returns at once."""

    ranks: Ranks
    device: torch.device
    timeout_s: float
    link: Link | None = None
    _meetings: Iterator[int] = field(default_factory=itertools.count)
    stall: StallWatch | None = None

    def sum(self, values: Tensor) -> Tensor:
        """`values` summed over all ranks, in place, on the device.  Collective."""
        if self.link:
            self.link.heartbeat.arrived()
            dist.all_reduce(values)
        return values

    def highest(self, values: list[float]) -> list[float]:
        """The largest of each value over all ranks.  Collective on the hosts; waits for no GPU."""
        if not self.link:
            return values
        self.link.heartbeat.arrived()
        agreed = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(agreed, op=dist.ReduceOp.MAX, group=self.link.control)
        return [float(value) for value in agreed]

    def gather(self, value: Any) -> list[Any]:
        """Every rank's `value`, which JSON can hold, in rank order, on every rank.  Collective."""
        if not self.link:
            return [value]
        # Not all_gather_object, which unpickles, and so executes, what another process sends.
        mine = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = self._sizes(mine)
        padded = [torch.zeros(max(sizes), dtype=torch.uint8) for _ in sizes]
        dist.all_gather(padded, _padded(mine, max(sizes)), group=self.link.control)
        texts = zip(padded, sizes, strict=True)
        return [json.loads(text[:size].numpy().tobytes()) for text, size in texts]

    def gather_on_head(self, value: dict[str, Any]) -> list[dict[str, Any]]:
        """Every rank's tensors and plain values, in rank order, on rank 0; empty elsewhere, which saves their memory.

        Tensors are on the CPU.  Collective.
        """
        if not self.link:
            return [value]
        mine = torch.frombuffer(bytearray(plain.dumps(value)), dtype=torch.uint8)
        sizes = self._sizes(mine)
        if not self.ranks.is_head:
            dist.send(mine, dst=0, group=self.link.control)
            return []
        return [value, *(self._received(rank, size) for rank, size in enumerate(sizes) if rank)]

    def _sizes(self, data: Tensor) -> list[int]:
        """The length of every rank's `data`, in rank order.  Collective."""
        assert self.link
        self.link.heartbeat.arrived()
        sizes = torch.zeros(self.ranks.world_size, dtype=torch.int64)
        sizes[self.ranks.rank] = len(data)
        dist.all_reduce(sizes, group=self.link.control)
        return [int(size) for size in sizes]

    def _received(self, rank: int, size: int) -> dict[str, Any]:
        """Receive the values that `rank` sends, without unpickling."""
        assert self.link
        data = torch.empty(size, dtype=torch.uint8)
        dist.recv(data, src=rank, group=self.link.control)
        received: dict[str, Any] = plain.loads(data.numpy().tobytes())
        return received

    def broadcast(self, payload: bytes | None) -> bytes | None:
        """Rank 0's `payload` on every rank.  Collective."""
        if not self.link:
            return payload
        size = int(self.highest([float(len(payload)) if payload is not None else -1.0])[0])
        if size < 0:
            return None
        data = torch.frombuffer(bytearray(payload or bytes(size)), dtype=torch.uint8)
        dist.broadcast(data, src=0, group=self.link.control)
        return data.numpy().tobytes()

    def barrier(self) -> None:
        """Wait for every rank.  Collective."""
        self.highest([0.0])

    def on_head(self, action: Callable[[], Result]) -> Result | None:
        """action() on rank 0, None elsewhere; a TrainerError of rank 0 is raised on all ranks.  Collective."""
        result, problem = _attempt(action) if self.ranks.is_head else (None, None)
        self._raise_on_all_ranks(problem)
        return result

    def once_per_node(self, action: Callable[[], Result]) -> Result:
        """action() on the first rank of each node, then on the others: they find what it left on disk.

        It may take longer than timeout_s.  A TrainerError of any first rank is raised on all ranks, so
        that none waits forever.  Collective.
        """
        first = self.ranks.local_rank == 0
        result, problem = _attempt(action) if first else (None, None)
        self._wait_for_all()
        self._raise_on_all_ranks(problem)
        if not first:
            result, problem = _attempt(action)
        self._wait_for_all()
        self._raise_on_all_ranks(problem)
        return result  # type: ignore[return-value]

    def _wait_for_all(self) -> None:
        """Wait for every rank without a time limit, as long as all are alive."""
        if not self.link:
            return
        shared, place, check_at = self.link.shared, str(next(self._meetings)), time.monotonic() + CHECK_EVERY_S
        here = shared.arrive(place)
        while here < self.ranks.world_size:
            time.sleep(0.05)  # a store can be waited on for a key, not for a count or a death
            here = shared.arrived(place)
            if time.monotonic() > check_at:
                if dead := listen(shared).dead:
                    raise MachineError(f"{named(dead, self.ranks.world_size)} died while the data was prepared.")
                check_at = time.monotonic() + CHECK_EVERY_S

    def _raise_on_all_ranks(self, problem: TrainerError | None) -> None:
        problems = self.gather(None if problem is None else [problem.code, str(problem)])
        for rank, found in enumerate(problems):
            if found is None:
                continue
            mine = rank == self.ranks.rank
            raised = problem if mine and problem is not None else error_with(*found)
            # Only the rank with the problem reports it: a full disk must name the right node.
            raised.is_mine_to_report = mine
            raise raised

    def moved(self) -> None:
        """Record progress of this rank for the heartbeat."""
        if self.link:
            self.link.heartbeat.moved()

    def advanced(self) -> None:
        """Record that this rank has reached its next batch; all ranks train on equally many."""
        if self.stall:
            self.stall.step()
        if self.link:
            self.link.heartbeat.arrived()
            self.link.heartbeat.moved()

    @contextmanager
    def watched(self, at_least_s: float) -> Iterator[Session]:
        """This session with stall detection inside the block, see stall.py; without it if at_least_s is 0."""
        progress = partial(_batches, self.link.shared) if self.link else dict
        with watched(at_least_s, Place(self.ranks.rank, self.ranks.world_size, progress)) as stall:
            yield replace(self, stall=stall)

    def rests(self) -> None:
        """Pause stall detection while this rank evaluates or saves."""
        if self.stall:
            self.stall.rest()

    def leave(self) -> None:
        """Give up, without waiting for ranks that may have left already."""
        if self.link:
            self.link.heartbeat.leave()


def _padded(data: Tensor, size: int) -> Tensor:
    return torch.cat([data, data.new_zeros(size - len(data))])


def _attempt(action: Callable[[], Result]) -> tuple[Result | None, TrainerError | None]:
    try:
        return action(), None
    except TrainerError as error:
        return None, error
    except OSError as error:
        name = error.filename2 or error.filename  # of two, the first is the temporary one
        place = f"{one_line(name, 300)}: " if name else ""
        remedy = "free some space" if is_full(error) else "check that path"
        sentence = f"{place}{error.strerror or error}; {remedy}, then start again."
        return None, not_written(error, sentence)


@contextmanager
def session(
    ranks: Ranks,
    device: torch.device,
    timeout_s: float,
    *,
    connect: bool,
    record: Record = no_record,
    asked: Callable[[], bool] = lambda: False,
    before: Before | None = None,
) -> Iterator[Session]:
    """Connect this rank to the others inside the block.

    Raises MachineError if the ranks cannot connect, and turns a collective that failed
    inside the block into a MachineError naming the lost ranks.
    record: called if another rank's reason for the failure is known, or if no exception will leave the block.
    asked: whether this process has been asked to leave; before: see join.
    """
    if not connect:
        yield Session(ranks, device, timeout_s)
        return
    link = join(ranks, device, timeout_s, record, asked, before)
    joined, ended_well = Session(ranks, device, timeout_s, link), False
    try:
        yield joined
        # Without this barrier one rank may close its sockets while another still reads (gloo aborts).
        joined.barrier()
        ended_well = True
        # Rank 0 must not close the store while another's heartbeat still uses it (torch complains on stderr).
        link.heartbeat.stop()
        with suppress(RuntimeError):  # the training is done: a rank that dies now has lost nothing
            joined.barrier()
    except Exception as error:
        link.heartbeat.leave()
        if isinstance(error, RuntimeError) and _is_communication(error):
            raise link.failure.lost_connection(str(error)) from error
        link.failure.explain(error)
        raise
    finally:
        # After a failure NCCL would wait forever for its last operation; the process exits anyway.
        if dist.is_initialized() and (ended_well or device.type != "cuda"):
            dist.destroy_process_group()
        link.heartbeat.stop()
        if link.failure.happened:
            link.failure.wait_for_peers()


def _batches(shared: SharedState) -> dict[int, int]:
    """The last published step of each rank; empty if the store does not answer."""
    try:
        return {rank: sign.step for rank, sign in shared.signs().items()}
    except NoAnswer:
        return {}


def _is_communication(error: RuntimeError) -> bool:
    """gloo raises plain RuntimeErrors; its messages name the library or the socket."""
    if isinstance(error, (dist.DistError, NoAnswer)):
        return True
    return any(word in str(error) for word in ("gloo", "NCCL", "peer", "Connection"))


def agree_on_folder(joined: Session, claim_folder: Callable[[], Path]) -> Path:
    """The run folder, after rank 0 has claimed it.  Collective."""
    claimed = joined.once_per_node(lambda: str(claim_folder()) if joined.ranks.is_head else "")
    return Path(joined.gather(claimed)[0])


def make_folders(joined: Session, *folders: Path) -> list[Path]:
    """Check that `folders` are writable; return those that this rank made, the innermost first.  Collective.

    Called before the data is loaded, so that a folder that cannot be written to fails the run at once.
    """
    made: list[Path] = []

    def make() -> None:
        for folder in folders:
            missing = [path for path in (folder, *folder.parents) if not path.exists()]
            try:
                folder.mkdir(parents=True, exist_ok=True)
                made[:0] = missing
                trial = folder / f".writable-{joined.ranks.rank}"
                trial.touch()
                trial.unlink()
            except OSError as error:
                raise not_writable(folder, error) from error

    joined.once_per_node(make)
    return made


def remove_empty(folders: list[Path]) -> None:
    """Remove the folders that are still empty, for example after an error in the data."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()
