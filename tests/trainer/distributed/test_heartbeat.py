"""A rank's sign of life, and what it does where its main thread hangs."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from torch import distributed
from torch.distributed.distributed_c10d import Store

from trainer.distributed import heartbeat
from trainer.distributed.heartbeat import Heartbeat, NoAnswer, SharedState, Sign


class Watcher:
    """Records what it is called for."""

    def __init__(self) -> None:
        self.called = {name: threading.Event() for name in ("stuck", "left_behind", "unanswered", "paused")}

    def stuck(self) -> None:
        self.called["stuck"].set()

    def left_behind(self) -> None:
        self.called["left_behind"].set()

    def unanswered(self) -> None:
        self.called["unanswered"].set()

    def paused(self, seconds: float) -> None:
        self.called["paused"].set()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_EVERY_S", 0.02)
    monkeypatch.setattr(heartbeat, "NOTICE_WITHIN_S", 0.2)


def shared_state(store: Store | None = None) -> SharedState:
    return SharedState(store or distributed.HashStore(), 1, 2, 5.0)


def test_a_rank_that_stands_still_sees_that_it_is_stuck() -> None:
    """As when the main thread waits for a GPU for ever: only the heartbeat can speak.  It goes on beating."""
    watcher, shared = Watcher(), shared_state()
    beat = Heartbeat(shared, watcher, 0.3, 60.0)
    beat.moved()
    assert watcher.called["stuck"].wait(timeout=10)
    before = shared.signs()[1].beat
    end = time.monotonic() + 10
    while shared.signs()[1].beat == before and time.monotonic() < end:
        time.sleep(0.01)
    assert shared.signs()[1].beat > before
    beat.stop()


@pytest.mark.parametrize("leaves", [False, True])
def test_a_rank_that_waits_for_one_that_left_is_ended_unless_it_leaves_itself(leaves: bool) -> None:
    """Its main thread hangs in a collective; the other has reported what happened, and the store closes soon."""
    watcher, shared = Watcher(), shared_state()
    beat = Heartbeat(shared, watcher, 60.0, 60.0)
    SharedState(shared.store, 0, 2, 5.0).leave()
    if leaves:
        beat.leave()
    assert watcher.called["left_behind"].wait(timeout=1 if leaves else 10) is not leaves
    beat.stop()


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
def stopped() -> Iterator[SharedState]:
    store = StoppedStore()
    yield SharedState(store, 1, 2, 0.1)  # type: ignore[arg-type]
    store.end.set()


@pytest.mark.parametrize("request_name", ["signs", "explanation", "left", "leave", "is_first_to_report"])
def test_no_request_hangs_on_a_stopped_host(request_name: str, stopped: SharedState) -> None:
    began = time.monotonic()
    with pytest.raises(NoAnswer):
        getattr(stopped, request_name)()
    assert time.monotonic() - began < 5


def test_ranks_read_what_others_wrote() -> None:
    store = distributed.HashStore()
    head, other = (SharedState(store, rank, 2, 5.0) for rank in range(2))

    assert head.beat(Sign(3, 7, leaving=False)) is False
    assert other.signs() == {0: Sign(3, 7, leaving=False)}
    assert (head.is_first_to_report(), other.is_first_to_report()) == (True, False)
    assert other.leave() == 1
    assert head.beat(Sign(4, 7, leaving=True)) is True
    assert (head.arrive("data"), other.arrived("data"), head.left()) == (1, 1, 1)
    assert head.explanation() is None
    other.explain(3, "unreadable image.")
    head.explain(6, "rank 1 of 2 died or hung.")  # comes second
    assert head.explanation() == (3, "unreadable image.")
