"""Answers that several tabs share for a few seconds, so that AWS is asked once for all of them."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from trainer.errors import TrainerError

Answer = TypeVar("Answer")
KEPT = 200  # answers
SHARE = 3.0  # an answer that took t s is kept for at least 3 t, so that at most a quarter of the time goes into asking


class Cache:
    """Asks once, whoever needs the answer meanwhile.  For threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._locks: OrderedDict[Hashable, threading.Lock] = OrderedDict()
        self._answers: dict[Hashable, tuple[float, Any]] = {}  # until when it holds

    def get(self, key: Hashable, ask: Callable[[], Answer], seconds: float) -> Answer:
        """The answer of ask(), not older than `seconds`; its error counts as an answer.  Raises TrainerError."""
        with self._of(key):
            until, answer = self._answers.get(key, (0.0, None))
            began = self._clock()
            if began >= until:
                answer = _answer(ask)
                ended = self._clock()
                self._answers[key] = ended + max(seconds, SHARE * (ended - began)), answer
        if isinstance(answer, TrainerError):
            raise answer.with_traceback(None)
        return answer  # type: ignore[no-any-return]  # of ask()

    def forget(self) -> None:
        """Ask again for everything, as after an action."""
        self._answers.clear()

    def _of(self, key: Hashable) -> threading.Lock:
        with self._lock:
            if key not in self._locks and len(self._locks) >= KEPT:
                old, _ = self._locks.popitem(last=False)
                self._answers.pop(old, None)
            return self._locks.setdefault(key, threading.Lock())


def _answer(ask: Callable[[], Answer]) -> Answer | TrainerError:
    try:
        return ask()
    except TrainerError as error:
        return error
