"""Shows where a rank stands when its training has stopped moving, long before anything gives up.

A thread knows how long a batch usually takes.  When none has come for much longer, the ranks that are behind write
their stack to standard error; where none is behind, as in a collective that hangs, each rank does.
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

# A stall is so many usual batches without a new one; the setting stall_s bounds it below.
USUAL = 20
# The first batches compile, tune and start workers; the usual time is that of the newest.
FIRST, NEWEST = 5, 50
LOOK_EVERY_S = 1.0
# There are so many looks at least before a stall.  One that comes late by this part of the limit found the process
# suspended, as by Ctrl-Z or `docker pause`, or its interpreter held: no batch could have come.
LOOKS = 3

# How many batches each rank has come to; empty where no rank can be asked.
Progress = Callable[[], Mapping[int, int]]
FRAMES = 12  # the innermost
COLLECTIVES = 3  # the newest
INDENT = "    "


@dataclass(frozen=True)
class Place:
    """One rank among `world_size`.  progress: asks all of them."""

    rank: int
    world_size: int
    progress: Progress = dict


class Pace:
    """How long batches take.  Pure: `now` is any clock that only grows, in s."""

    def __init__(self, at_least_s: float) -> None:
        self._at_least_s = at_least_s
        self._times: deque[float] = deque(maxlen=NEWEST)
        self._at: float | None = None
        self._counts_from = -math.inf

    def step(self, now: float) -> None:
        """A batch has come."""
        if self._at is not None:
            self._times.append(now - self._at)
        self._at = now

    def rest(self) -> None:
        """No batch is expected until the next one comes."""
        self._at = None

    def start_anew(self, now: float) -> None:
        """Time before `now` is no waiting.  Another thread's than step() and rest()."""
        self._counts_from = now

    @property
    def usual_s(self) -> float | None:
        """The time of a batch, once that is known."""
        times = tuple(self._times)
        return median(times) if len(times) >= FIRST else None

    @property
    def limit_s(self) -> float | None:
        """How long to wait for a batch."""
        usual = self.usual_s
        return None if usual is None else max(self._at_least_s, USUAL * usual)

    def waited_s(self, now: float) -> float:
        """How long no batch has come; 0 while none is expected."""
        at = self._at
        return 0.0 if at is None else now - max(at, self._counts_from)

    def is_stalled(self, now: float) -> bool:
        limit = self.limit_s
        return limit is not None and self.waited_s(now) > limit


class StallWatch:
    """The thread.  tell: writes lines; at_least_s: see Pace."""

    def __init__(self, at_least_s: float, place: Place, tell: Callable[[str], None]) -> None:
        self._pace, self._place, self._tell = Pace(at_least_s), place, tell
        self._over = threading.Event()
        self._main = threading.get_ident()
        self._was_stalled = self._has_told = False
        self._thread = threading.Thread(target=self._run, name="stall watch", daemon=True)
        self._thread.start()

    def step(self) -> None:
        """A batch has come.  Called by the main thread, at each: it must be quick."""
        self._pace.step(time.monotonic())

    def rest(self) -> None:
        """The main thread does something else than training."""
        self._pace.rest()

    def stop(self) -> None:
        """Ends the thread."""
        self._over.set()
        self._thread.join(LOOK_EVERY_S)

    def _run(self) -> None:
        while (now := self._next_look()) is not None:
            is_stalled = self._pace.is_stalled(now)
            if is_stalled and not self._was_stalled:
                self._has_told = self._tell_stall()
            elif self._has_told and not is_stalled:
                self._has_told = False
                self._tell(f"{self._name} continues.\n")
            self._was_stalled = is_stalled

    def _next_look(self) -> float | None:
        """Waits for the next look; None: there is none."""
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

    def _tell_stall(self) -> bool:
        """Whether this rank had anything to tell."""
        waited, usual = self._pace.waited_s(time.monotonic()), self._pace.usual_s
        progress = self._place.progress()
        role = role_of(self._place.rank, progress)
        if role == "waits":
            return False
        since = f"no new batch for {waited:.0f} s, where one usually takes {usual:.2g} s"
        if role == "names":
            slow = named(behind(progress), self._place.world_size)
            self._tell(f"warning: {since}: {slow} fell behind the others, which wait.\n")
            return True
        self._tell(f"warning: {self._name}: {since}; it is here:\n" + "".join(stacks(self._main)))
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
    with suppress(OSError):  # in one piece, as several ranks may write
        sys.stderr.write(text)
        sys.stderr.flush()


def behind(progress: Mapping[int, int]) -> Sequence[int]:
    """The ranks that have come less far than others; none where all are equal."""
    furthest = max(progress.values(), default=0)
    return sorted(rank for rank, batches in progress.items() if batches < furthest)


def role_of(rank: int, progress: Mapping[int, int]) -> str:
    """Decides what `rank` does about a stall: show its stack, name those that are behind, or wait without a word.

    A rank that is behind may be unable to write, so the first of the others names it.
    """
    slow = behind(progress)
    if not slow or rank in slow or rank not in progress:
        return "shows"
    return "names" if rank == min(set(progress) - set(slow)) else "waits"


def stacks(thread: int) -> Iterator[str]:
    """Lines that say where `thread` (threading.get_ident) stands, each with its end."""
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
    """torch's flight recorder: what it has of collectives, by torch's names; empty where there is none.

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
