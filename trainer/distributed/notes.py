"""Notes that the ranks leave for each other in a store that all of them reach: who is alive, who left, and why.

The store is on rank 0's node: in torchrun's agent, or in rank 0 itself.  Its calls have no time limit of their own, so
one whose host is stopped would never return.  Here every question is answered in time, or raises NoAnswer.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from torch.distributed.distributed_c10d import Store

Answer = TypeVar("Answer")

_REASON, _LEFT, _REPORTED = "reason", "left", "reported"


class NoAnswer(RuntimeError):
    """The store's host is gone, or stopped."""


class Sign(NamedTuple):
    """beat: grows with each second that the process lives; step: how many places it has come to that every rank comes
    to; leaving: whether it has given the training up.
    """

    beat: int
    step: int
    leaving: bool


Signs = Mapping[int, Sign]  # by rank


@dataclass(frozen=True)
class Notes:
    """One rank's view of the notes.  Safe from any thread.  limit_s: for each answer."""

    store: Store
    rank: int
    world_size: int
    limit_s: float

    def beat(self, sign: Sign) -> bool:
        """Publishes `sign` to the others; returns whether any rank has left a failed training."""

        def write(store: Store) -> bool:
            store.set(f"sign/{self.rank}", f"{sign.beat} {sign.step} {sign.leaving:d}")
            return bool(store.check([_LEFT]))

        return self._ask(write)

    def signs(self) -> Signs:
        """The last sign of each rank that has published any."""

        def read(store: Store) -> dict[int, Sign]:
            keys = {rank: f"sign/{rank}" for rank in range(self.world_size)}
            texts = {rank: store.get(key).split() for rank, key in keys.items() if store.check([key])}
            return {rank: Sign(int(beat), int(step), leaving == b"1") for rank, (beat, step, leaving) in texts.items()}

        return self._ask(read)

    def is_first_to_report(self) -> bool:
        """True for the first rank that asks, which then reports for all of them."""
        return self._ask(lambda store: int(store.add(_REPORTED, 1)) == 1)

    def explain(self, code: int, reason: str) -> None:
        """Leaves the exit code and the reason of the failure; the first rank's count."""
        self._ask(lambda store: store.compare_set(_REASON, "", json.dumps([int(code), reason])))

    def explanation(self) -> tuple[int, str] | None:
        """The exit code and the reason that a rank has left, if any has."""

        def read(store: Store) -> tuple[int, str] | None:
            if not store.check([_REASON]):
                return None
            code, reason = json.loads(store.get(_REASON))
            return code, reason

        return self._ask(read)

    def leave(self) -> int:
        """Counts this rank among those that have left a failed training; returns how many they are now."""
        return self._ask(lambda store: int(store.add(_LEFT, 1)))

    def left(self) -> int:
        """How many ranks have left a failed training."""
        return self._ask(lambda store: int(store.add(_LEFT, 0)))

    def arrive(self, place: str) -> int:
        """Counts this rank among those that have arrived at `place`; returns how many they are now."""
        return self._ask(lambda store: int(store.add(f"place/{place}", 1)))

    def arrived(self, place: str) -> int:
        """How many ranks have arrived at `place`."""
        return self._ask(lambda store: int(store.add(f"place/{place}", 0)))

    def write(self, key: str, text: str) -> None:
        """Leaves `text` under a key that no other rank writes."""
        self._ask(lambda store: store.set(f"text/{key}", text))

    def read(self, key: str) -> str | None:
        """Reads the note that a rank has left under that key, if any has."""
        name = f"text/{key}"
        return self._ask(lambda store: store.get(name).decode() if store.check([name]) else None)

    def _ask(self, question: Callable[[Store], Answer]) -> Answer:
        answer: Future[Answer] = Future()

        def ask() -> None:
            try:
                answer.set_result(question(self.store))
            except RuntimeError as error:
                answer.set_exception(NoAnswer(str(error)))

        # A thread for each: one that never returns is left behind.
        threading.Thread(target=ask, name="notes", daemon=True).start()
        try:
            return answer.result(self.limit_s)
        except TimeoutError as error:
            raise NoAnswer(f"no answer within {self.limit_s:g} s") from error
