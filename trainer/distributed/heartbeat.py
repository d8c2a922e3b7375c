"""Heartbeat thread of each rank, which also detects that other ranks are gone.

A collective that fails does not say which rank is to blame, and one that hangs on a GPU never returns.  So a
thread of every rank publishes each second that its process is alive and how far its training has come.  It also ends
the process if the others have left and the main thread does not notice.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from torch.distributed.distributed_c10d import Store

BEAT_EVERY_S = 1.0
# Longer than a thread is delayed on a busy machine.
PAUSE_S = 4.0
# How long the main thread may take to notice by itself that the training has failed.
NOTICE_WITHIN_S = 3.0
Answer = TypeVar("Answer")

_REASON, _LEFT, _REPORTED = "reason", "left", "reported"


class Watcher(Protocol):
    """Callbacks for a failure that the main thread does not notice.  Called in a thread."""

    def stuck(self) -> None:
        """This rank has made no progress for its limit: its main thread waits for a GPU that waits for a lost rank."""

    def left_behind(self) -> None:
        """Another rank has left a failed training, and this one has not noticed."""

    def unanswered(self) -> None:
        """The store's host is gone, and this rank has not noticed."""

    def paused(self, seconds: float) -> None:
        """This process was suspended for `seconds`, for example by SIGSTOP."""


class Heartbeat:
    """The heartbeat's thread.  shared: with the limit after which their host counts as gone; limit_s: how long the
    training may make no progress; leave_within_s: how long a rank that gives up may take to leave.
    """

    def __init__(self, shared: SharedState, watcher: Watcher, limit_s: float, leave_within_s: float) -> None:
        self._shared, self._watcher = shared, watcher
        self._limit_s, self._leave_within_s = limit_s, leave_within_s
        self._leaving, self._over, self._wake = threading.Event(), threading.Event(), threading.Event()
        self._step = 0
        self._moved_at: float | None = None  # None: not to be watched
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def arrived(self) -> None:
        """Count a point in the training that every rank reaches equally often."""
        self._step += 1

    def moved(self) -> None:
        """Record progress; from now on it is expected at least every limit_s."""
        self._moved_at = time.monotonic()

    def leave(self) -> None:
        """Publish that this rank gives up; the heartbeat continues until the process ends."""
        self._moved_at = None
        self._leaving.set()
        self._wake.set()  # so that the others know at once

    def stop(self) -> None:
        """Stop the thread."""
        self._over.set()
        self._wake.set()
        self._thread.join(BEAT_EVERY_S)  # with a limit, as the store's host may not answer

    def _run(self) -> None:
        beat, knows, last = 0, False, time.monotonic()
        while not self._over.is_set():
            beat += 1
            last = self._watch_clock(last)
            try:
                has_rank_left = self._shared.beat(Sign(beat, self._step, self._leaving.is_set()))
            except NoAnswer:
                self._unless_it_leaves(self._watcher.unanswered)
                return
            if has_rank_left and not knows:
                knows = True
                # In a separate thread, so that the heartbeat continues.
                threading.Thread(target=self._unless_it_leaves, args=(self._watcher.left_behind,), daemon=True).start()
            if self._moved_at is not None and time.monotonic() - self._moved_at > self._limit_s:
                self._moved_at = None
                threading.Thread(target=self._watcher.stuck, daemon=True).start()
            self._wake.wait(BEAT_EVERY_S)
            self._wake.clear()

    def _watch_clock(self, last: float) -> float:
        now = time.monotonic()
        if now - last > PAUSE_S:
            self._watcher.paused(now - last)
        return now

    def _unless_it_leaves(self, end: Callable[[], None]) -> None:
        """Call `end` if the main thread does not leave by itself in time, or hangs while leaving."""
        leaves = self._leaving.wait(NOTICE_WITHIN_S)
        if not self._over.is_set() and not (leaves and self._over.wait(self._leave_within_s)):
            self._over.set()  # the store may go before this process does
            end()


class NoAnswer(RuntimeError):
    """The store's host is gone, or stopped."""


class Sign(NamedTuple):
    """State of one rank, as published by its heartbeat.

    beat: counts seconds that the process is alive; step: counts the calls of Heartbeat.arrived(); leaving: whether it
    has given up.
    """

    beat: int
    step: int
    leaving: bool


Signs = Mapping[int, Sign]  # by rank


@dataclass(frozen=True)
class SharedState:
    """State that the ranks share, in the store.  Thread-safe.  limit_s: time limit for each request."""

    store: Store
    rank: int
    world_size: int
    limit_s: float

    def beat(self, sign: Sign) -> bool:
        """Publish `sign` to the others; return whether any rank has left a failed training."""

        def write(store: Store) -> bool:
            store.set(f"sign/{self.rank}", f"{sign.beat} {sign.step} {sign.leaving:d}")
            return bool(store.check([_LEFT]))

        return self._request(write)

    def signs(self) -> Signs:
        """The last sign of each rank that has published any."""

        def read(store: Store) -> dict[int, Sign]:
            keys = {rank: f"sign/{rank}" for rank in range(self.world_size)}
            texts = {rank: store.get(key).split() for rank, key in keys.items() if store.check([key])}
            return {rank: Sign(int(beat), int(step), leaving == b"1") for rank, (beat, step, leaving) in texts.items()}

        return self._request(read)

    def is_first_to_report(self) -> bool:
        """True for the first rank that asks, which then reports for all of them."""
        return self._request(lambda store: int(store.add(_REPORTED, 1)) == 1)

    def explain(self, code: int, reason: str) -> None:
        """Record the exit code and the reason of the failure; the first record is kept."""
        self._request(lambda store: store.compare_set(_REASON, "", json.dumps([int(code), reason])))

    def explanation(self) -> tuple[int, str] | None:
        """The recorded exit code and reason of the failure, or None."""

        def read(store: Store) -> tuple[int, str] | None:
            if not store.check([_REASON]):
                return None
            code, reason = json.loads(store.get(_REASON))
            return code, reason

        return self._request(read)

    def leave(self) -> int:
        """Count this rank as having left a failed training; return how many have."""
        return self._request(lambda store: int(store.add(_LEFT, 1)))

    def left(self) -> int:
        """How many ranks have left a failed training."""
        return self._request(lambda store: int(store.add(_LEFT, 0)))

    def arrive(self, place: str) -> int:
        """Count this rank as having arrived at `place`; return how many have."""
        return self._request(lambda store: int(store.add(f"place/{place}", 1)))

    def arrived(self, place: str) -> int:
        """How many ranks have arrived at `place`."""
        return self._request(lambda store: int(store.add(f"place/{place}", 0)))

    def write(self, key: str, text: str) -> None:
        """Store `text` under a key that no other rank writes."""
        self._request(lambda store: store.set(f"text/{key}", text))

    def read(self, key: str) -> str | None:
        """The text stored under `key`, or None."""
        name = f"text/{key}"
        return self._request(lambda store: store.get(name).decode() if store.check([name]) else None)

    def _request(self, operation: Callable[[Store], Answer]) -> Answer:
        answer: Future[Answer] = Future()

        def run() -> None:
            try:
                answer.set_result(operation(self.store))
            except RuntimeError as error:
                answer.set_exception(NoAnswer(str(error)))

        # One thread per request, as it may never return.
        threading.Thread(target=run, name="shared-state", daemon=True).start()
        try:
            return answer.result(self.limit_s)
        except TimeoutError as error:
            raise NoAnswer(f"no answer within {self.limit_s:g} s") from error
