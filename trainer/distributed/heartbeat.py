"""Who still lives and who still moves: what a rank can say when the others stop answering.

A collective that fails names nobody, and one that hangs on a GPU never returns.  So every rank has a
thread that writes two numbers to the shared store each second: its beat, which stops with the
process, and its step, which stops with the training.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping

from torch.distributed.distributed_c10d import Store

from trainer.errors import tell

BEAT_EVERY_S = 1.0
# Long enough for a living rank's beat to change, also on a busy machine.
LISTEN_S = 3.5
# How long a rank may take to see by itself that another has left a failed training.
LEFT_BEHIND_S = 3.0
# The store's key for that.
LEFT = "left"

Signs = Mapping[int, tuple[int, int]]  # rank -> (beat, step)


class Heartbeat:
    """This rank's beat, and what it hears of the others'.  on_silence: called with the lost ranks, in a thread,
    when this rank itself has not moved for timeout_s: its main thread then waits for ever.  on_left_behind: called
    when another rank has left a failed training, and this one still waits for it.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        world_size: int,
        timeout_s: float,
        on_silence: Callable[[list[int]], None],
        on_left_behind: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._rank, self._world_size = store, rank, world_size
        self._timeout_s, self._on_silence, self._on_left_behind = timeout_s, on_silence, on_left_behind
        self._leaving = threading.Event()
        self._beat = self._step = 0
        self._moved_at: float | None = None  # None: not to be watched
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def moved(self) -> None:
        """The training has come further; from now on it must move at least every timeout_s."""
        self._step += 1
        self._moved_at = time.monotonic()

    def rest(self) -> None:
        """What comes now may take as long as it likes."""
        self._moved_at = None

    def leave(self) -> None:
        """This rank leaves a failed training; it goes on beating until it is gone."""
        self._leaving.set()

    def stop(self) -> None:
        """Ends the thread."""
        self._over.set()
        self._thread.join()

    def lost(self) -> list[int]:
        """The ranks that no longer live, or else those that stand still while others moved.  Takes LISTEN_S."""
        before = self._signs()
        time.sleep(LISTEN_S)  # a beat is heard by waiting for it
        return lost_among(before, self._signs(), self._world_size, self._rank)

    def _signs(self) -> Signs:
        keys = {rank: f"sign/{rank}" for rank in range(self._world_size)}
        there = {rank: self._store.get(key).decode() for rank, key in keys.items() if self._store.check([key])}
        return {rank: (int(beat), int(step)) for rank, text in there.items() for beat, step in [text.split()]}

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._beat += 1
                self._store.set(f"sign/{self._rank}", f"{self._beat} {self._step}")
                if self._moved_at is not None and time.monotonic() - self._moved_at > self._timeout_s:
                    self.rest()
                    # In a thread of its own: who stops beating while it listens is taken for dead.
                    threading.Thread(target=lambda: self._on_silence(self.lost()), daemon=True).start()
                if not self._leaving.is_set() and self._store.check([LEFT]):
                    threading.Thread(target=self._catch_up, daemon=True).start()
                    return
                self._over.wait(BEAT_EVERY_S)
        except RuntimeError:
            return  # the store went with its host: the next collective tells

    def _catch_up(self) -> None:
        if not self._leaving.wait(LEFT_BEHIND_S) and not self._over.is_set():
            self._on_left_behind()


def lost_among(before: Signs, after: Signs, world_size: int, me: int) -> list[int]:
    """Which ranks two looks at their signs show to be dead, or else behind all others.  Pure."""
    others = [rank for rank in range(world_size) if rank != me]
    dead = [rank for rank in others if rank not in after or after[rank][0] == before.get(rank, (-1, 0))[0]]
    if dead:
        return dead
    furthest = max(step for _, step in after.values())
    return [rank for rank in others if after[rank][1] < furthest]


def end_process(code: int, sentence: str | None) -> None:
    """Ends this process at once: for when its main thread hangs in a driver and will never see an exception."""
    if sentence:
        sys.stdout.flush()
        tell(code, sentence)
    os._exit(code)
