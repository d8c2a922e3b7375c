"""Stall detection: print stack traces when training stops progressing, long before any time limit.

A thread measures how long a batch usually takes.  When the next one takes much longer, the ranks that are behind print
their stack to standard error; if none is behind, as in a hung collective, every rank does.
"""

from __future__ import annotations

import json
import math
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

from trainer.distributed.failure import named

# Stalled after this many median batch times without a new batch, and at least stall_s.
USUAL = 20
# The first batches compile, tune and start workers; the median is over the newest.
FIRST, NEWEST = 5, 50
LOOK_EVERY_S = 1.0
# Checks per limit, at least.  One that is late by 1/LOOKS of the limit means that the process was suspended, for
# example by Ctrl-Z or `docker pause`, or the GIL was held: no batch was possible.
LOOKS = 3

# The number of batches that each rank has reached; empty if unknown.
Progress = Callable[[], Mapping[int, int]]
FRAMES = 12  # the innermost
COLLECTIVES = 3  # the newest
INDENT = "    "


@dataclass(frozen=True)
class Place:
    """One rank among `world_size`.  progress: returns that of all ranks."""

    rank: int
    world_size: int
    progress: Progress = dict


class Pace:
    """Batch times.  Pure: `now` is any monotonic clock, in s."""

    def __init__(self, at_least_s: float) -> None:
        self._at_least_s = at_least_s
        self._times: deque[float] = deque(maxlen=NEWEST)
        self._at: float | None = None
        self._counts_from = -math.inf

    def step(self, now: float) -> None:
        """Record a new batch."""
        if self._at is not None:
            self._times.append(now - self._at)
        self._at = now

    def rest(self) -> None:
        """Stop expecting batches until the next step()."""
        self._at = None

    def start_anew(self, now: float) -> None:
        """Don't count time before `now` as waiting.  Called from another thread than step() and rest()."""
        self._counts_from = now

    @property
    def usual_s(self) -> float | None:
        """The median time of a batch; None until known."""
        times = tuple(self._times)
        return median(times) if len(times) >= FIRST else None

    @property
    def limit_s(self) -> float | None:
        """How long to wait for a batch before it counts as stalled; None until known."""
        usual = self.usual_s
        return None if usual is None else max(self._at_least_s, USUAL * usual)

    def waited_s(self, now: float) -> float:
        """Time since the last batch; 0 while none is expected."""
        at = self._at
        return 0.0 if at is None else now - max(at, self._counts_from)

    def is_stalled(self, now: float) -> bool:
        limit = self.limit_s
        return limit is not None and self.waited_s(now) > limit


class StallWatch:
    """The stall detection thread.  write: writes a message; at_least_s: the lower bound of the limit."""

    def __init__(self, at_least_s: float, place: Place, write: Callable[[str], None]) -> None:
        self._pace, self._place, self._write = Pace(at_least_s), place, write
        self._over = threading.Event()
        self._main = threading.get_ident()
        self._was_stalled = self._has_warned = False
        self._thread = threading.Thread(target=self._run, name="stall watch", daemon=True)
        self._thread.start()

    def step(self) -> None:
        """Record a new batch.  Called by the main thread for each batch, so it must be fast."""
        self._pace.step(time.monotonic())

    def rest(self) -> None:
        """Pause detection while the main thread is not training."""
        self._pace.rest()

    def stop(self) -> None:
        """Stop the thread."""
        self._over.set()
        self._thread.join(LOOK_EVERY_S)

    def _run(self) -> None:
        while (now := self._next_look()) is not None:
            is_stalled = self._pace.is_stalled(now)
            if is_stalled and not self._was_stalled:
                self._has_warned = self._warn()
            elif self._has_warned and not is_stalled:
                self._has_warned = False
                self._write(f"{self._name} continues.\n")
            self._was_stalled = is_stalled

    def _next_look(self) -> float | None:
        """Wait for the next check; return its time, or None if stopped."""
        wait_s, begun = min(LOOK_EVERY_S, self._part_s), time.monotonic()
        if self._over.wait(wait_s):
            return None
        now = time.monotonic()
        if now - begun - wait_s > self._part_s:
            self._pace.start_anew(now)
        return now

    @property
    def _part_s(self) -> float:
        return (self._pace.limit_s or math.inf) / LOOKS

    @property
    def _name(self) -> str:
        return named([self._place.rank], self._place.world_size)

    def _warn(self) -> bool:
        """Report the stall if it is up to this rank; return whether it did."""
        waited, usual = self._pace.waited_s(time.monotonic()), self._pace.usual_s
        progress = self._place.progress()
        role = role_of(self._place.rank, progress)
        if role == "waits":
            return False
        since = f"no new batch for {waited:.0f} s, where one usually takes {usual:.2g} s"
        if role == "names":
            slow = named(behind(progress), self._place.world_size)
            self._write(f"warning: {since}: {slow} fell behind the others, which wait.\n")
            return True
        self._write(f"warning: {self._name}: {since}; it is here:\n" + "".join(stacks(self._main)))
        return True


@contextmanager
def watched(at_least_s: float, place: Place) -> Iterator[StallWatch | None]:
    """A watch for as long as the block runs, which reports on standard error; None for 0 s.  Main thread only."""
    if not at_least_s:
        yield None
        return
    watch = StallWatch(at_least_s, place, _write)
    try:
        yield watch
    finally:
        watch.stop()


def _write(text: str) -> None:
    with suppress(OSError):  # in one write, as several ranks may print
        sys.stderr.write(text)
        sys.stderr.flush()


def behind(progress: Mapping[int, int]) -> Sequence[int]:
    """The ranks that are behind the others; none if all are equal."""
    furthest = max(progress.values(), default=0)
    return sorted(rank for rank, batches in progress.items() if batches < furthest)


def role_of(rank: int, progress: Mapping[int, int]) -> str:
    """What `rank` does about a stall: show its stack, name the ranks that are behind, or wait silently.

    A rank that is behind may be unable to write, so the first of the others names it.
    """
    slow = behind(progress)
    if not slow or rank in slow or rank not in progress:
        return "shows"
    return "names" if rank == min(set(progress) - set(slow)) else "waits"


def stacks(thread: int) -> Iterator[str]:
    """The stack of `thread` (a threading.get_ident()) and the latest collectives, as lines with newlines."""
    frame = sys._current_frames().get(thread)
    yield from (f"{INDENT}{line}\n" for line in stack_of(frame))
    for line in collectives(recorded()):
        yield f"{INDENT}{line}\n"


def stack_of(frame: FrameType | None) -> list[str]:
    """The innermost frames, the newest first."""
    if frame is None:
        return ["its main thread has ended"]
    found = traceback.extract_stack(frame)[-FRAMES:]
    return [f"{_short(f.filename)}:{f.lineno} in {f.name}: {f.line}" for f in reversed(found)]


def _short(path: str) -> str:
    return "/".join(Path(path).parts[-2:])


def recorded() -> Mapping[str, Any]:
    """The content of torch's flight recorder of collectives; empty if there is none.

    https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html
    """
    with suppress(ImportError, AttributeError, RuntimeError, ValueError, TypeError):
        from torch._C import _distributed_c10d as c10d

        for backend in ("nccl", "gloo"):
            content: Any = json.loads(c10d._dump_fr_trace_json(includeCollectives=True, backend=backend))
            if content.get("entries"):
                return dict(content)
    return {}


def collectives(trace: Mapping[str, Any]) -> list[str]:
    """The newest collectives in a flight recorder's trace, the newest first."""
    entries = [entry for entry in trace.get("entries", ()) if isinstance(entry, Mapping)]
    return [
        f"collective {entry.get('collective_seq_id', '?')}: {entry.get('profiling_name', '?')}, "
        f"{entry.get('state', '?')}, sizes {entry.get('input_sizes', '?')}"
        for entry in entries[-COLLECTIVES:][::-1]
    ]
