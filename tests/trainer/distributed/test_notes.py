"""What the ranks write down for each other, and a store whose host is stopped."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from torch import distributed

from trainer.distributed.notes import NoAnswer, Notes, Sign


class StoppedStore:
    """Its host is stopped: no call returns before the test ends."""

    def __init__(self) -> None:
        self.end = threading.Event()

    def __getattr__(self, name: str) -> Any:
        def wait(*args: object) -> None:
            self.end.wait(30)
            raise RuntimeError("the test is over")

        return wait


@pytest.fixture
def stopped() -> Iterator[Notes]:
    store = StoppedStore()
    yield Notes(store, 1, 2, 0.1)  # type: ignore[arg-type]
    store.end.set()


@pytest.mark.parametrize("question", ["signs", "explanation", "left", "leave", "is_first_to_report"])
def test_no_question_waits_for_ever_for_a_stopped_host(question: str, stopped: Notes) -> None:
    began = time.monotonic()
    with pytest.raises(NoAnswer):
        getattr(stopped, question)()
    assert time.monotonic() - began < 5


def test_a_host_that_is_gone_gives_no_answer() -> None:
    class Closed:
        def check(self, keys: list[str]) -> bool:
            raise distributed.DistNetworkError("Connection reset by peer")

    with pytest.raises(NoAnswer, match="reset"):
        Notes(Closed(), 1, 2, 5.0).explanation()  # type: ignore[arg-type]


def test_ranks_read_each_others_notes() -> None:
    store = distributed.HashStore()
    head, other = (Notes(store, rank, 2, 5.0) for rank in range(2))

    assert head.beat(Sign(3, 7, leaving=False)) is False
    assert other.signs() == {0: Sign(3, 7, leaving=False)}
    assert (head.is_first_to_report(), other.is_first_to_report()) == (True, False)
    assert other.leave() == 1
    assert head.beat(Sign(4, 7, leaving=True)) is True
    assert (head.arrive("data"), other.arrived("data"), head.left()) == (1, 1, 1)


def test_the_first_rank_to_fail_explains_the_failure_to_the_others() -> None:
    store = distributed.HashStore()
    head, other = (Notes(store, rank, 2, 5.0) for rank in range(2))

    assert head.explanation() is None
    other.explain(3, "unreadable image.")
    head.explain(6, "rank 1 of 2 died or hung.")

    assert head.explanation() == (3, "unreadable image.")
