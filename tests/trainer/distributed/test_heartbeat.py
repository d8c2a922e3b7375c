"""A rank's sign of life, and what it does where its main thread hangs."""

import threading
import time

import pytest
from torch import distributed
from torch.distributed.distributed_c10d import Store

from trainer.distributed import heartbeat
from trainer.distributed.heartbeat import Heartbeat
from trainer.distributed.notes import NoAnswer, Notes, Sign


class Watcher:
    """Notes what it is called for."""

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


def notes(store: Store | None = None) -> Notes:
    return Notes(store or distributed.HashStore(), 1, 2, 5.0)


def test_a_rank_that_stands_still_sees_that_it_is_stuck() -> None:
    """As when the main thread waits for a GPU for ever: only the heartbeat can speak.  It goes on beating."""
    watcher, shared = Watcher(), notes()
    beat = Heartbeat(shared, watcher, 0.3, 60.0)
    beat.moved()
    assert watcher.called["stuck"].wait(timeout=10)
    before = shared.signs()[1].beat
    end = time.monotonic() + 10
    while shared.signs()[1].beat == before and time.monotonic() < end:
        time.sleep(0.01)
    assert shared.signs()[1].beat > before
    beat.stop()


def test_the_others_see_how_far_a_rank_has_come_and_that_it_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_EVERY_S", 60.0)
    shared, shown = notes(), threading.Event()
    original = Notes.beat

    def beat_and_note(self: Notes, sign: Sign) -> bool:
        try:
            return original(self, sign)
        finally:
            if sign.leaving:
                shown.set()

    monkeypatch.setattr(Notes, "beat", beat_and_note)
    beat = Heartbeat(shared, Watcher(), 60.0, 60.0)
    beat.arrived()
    beat.moved()
    beat.leave()
    assert shown.wait(timeout=10)  # at once, and not with the next beat
    assert shared.signs()[1][1:] == (1, True)
    beat.stop()


@pytest.mark.parametrize("leaves", [False, True])
def test_a_rank_that_waits_for_one_that_left_is_ended_unless_it_leaves_itself(leaves: bool) -> None:
    """Its main thread hangs in a collective; the other has told what happened, and the store closes soon."""
    watcher, shared = Watcher(), notes()
    beat = Heartbeat(shared, watcher, 60.0, 60.0)
    Notes(shared.store, 0, 2, 5.0).leave()
    if leaves:
        beat.leave()
    assert watcher.called["left_behind"].wait(timeout=1 if leaves else 10) is not leaves
    beat.stop()


def test_a_rank_that_hangs_on_its_way_out_is_ended_too() -> None:
    watcher, shared = Watcher(), notes()
    beat = Heartbeat(shared, watcher, 60.0, 0.1)
    beat.leave()
    Notes(shared.store, 0, 2, 5.0).leave()
    assert watcher.called["left_behind"].wait(timeout=10)
    beat.stop()


def test_a_rank_whose_stores_host_is_gone_does_not_stay_as_an_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(self: Notes, sign: Sign) -> bool:
        raise NoAnswer("Connection reset by peer")

    monkeypatch.setattr(Notes, "beat", gone)
    watcher = Watcher()
    beat = Heartbeat(notes(), watcher, 60.0, 60.0)
    assert watcher.called["unanswered"].wait(timeout=10)
    beat.stop()


def test_a_process_that_was_stopped_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "PAUSE_S", 0.1)
    monkeypatch.setattr(heartbeat, "BEAT_EVERY_S", 0.2)
    watcher = Watcher()
    beat = Heartbeat(notes(), watcher, 60.0, 60.0)
    assert watcher.called["paused"].wait(timeout=10)
    beat.stop()


def test_a_rank_that_moves_is_left_alone() -> None:
    watcher = Watcher()
    beat = Heartbeat(notes(), watcher, 60.0, 60.0)
    beat.moved()
    beat.stop()
    assert not any(event.is_set() for event in watcher.called.values())
