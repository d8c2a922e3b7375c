"""Who is named when ranks stop answering."""

import threading
from collections.abc import Callable

import pytest
from torch import distributed

from trainer.distributed import heartbeat
from trainer.distributed.heartbeat import Heartbeat, lost_among


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        ({0: (5, 9), 1: (5, 9), 2: (7, 9)}, {0: (8, 9), 1: (8, 9), 2: (7, 9)}, [2]),  # 2 beats no more
        ({0: (5, 9), 1: (5, 9)}, {0: (8, 9), 1: (8, 9)}, [2]),  # 2 never did
        ({0: (5, 9), 1: (5, 9), 2: (5, 8)}, {0: (8, 9), 1: (8, 9), 2: (8, 8)}, [2]),  # 2 lives and stands still
        ({0: (5, 9), 1: (5, 9), 2: (5, 9)}, {0: (8, 9), 1: (8, 9), 2: (8, 9)}, []),
        ({0: (5, 0), 1: (5, 0), 2: (5, 0)}, {0: (8, 0), 1: (8, 0), 2: (8, 0)}, []),  # still getting ready
    ],
)
def test_the_dead_are_named_and_else_those_that_stand_still(
    before: heartbeat.Signs, after: heartbeat.Signs, lost: list[int]
) -> None:
    assert lost_among(before, after, world_size=3, me=0) == lost


def test_a_rank_whose_main_thread_hangs_says_who_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the main thread waits for a GPU for ever: only the heartbeat can speak."""
    monkeypatch.setattr(heartbeat, "BEAT_EVERY_S", 0.02)
    monkeypatch.setattr(heartbeat, "LISTEN_S", 0.2)
    heard: list[list[int]] = []
    silence = threading.Event()

    def on_silence(lost: list[int]) -> None:
        heard.append(lost)
        silence.set()

    store = distributed.HashStore()
    beats = [Heartbeat(store, rank, 3, 0.3, on_silence if rank == 0 else heard.append) for rank in range(2)]
    beats[1].rest()
    beats[0].moved()
    assert silence.wait(timeout=10)
    assert heard == [[2]]  # rank 2 never came
    for beat in beats:
        beat.stop()


def test_a_rank_that_listens_for_the_lost_goes_on_beating(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that hang at the same moment, for want of a third, must not take each other for dead."""
    monkeypatch.setattr(heartbeat, "BEAT_EVERY_S", 0.02)
    monkeypatch.setattr(heartbeat, "LISTEN_S", 0.3)
    heard: dict[int, list[int]] = {}
    both = threading.Barrier(3)

    def silence_of(rank: int) -> Callable[[list[int]], None]:
        def on_silence(lost: list[int]) -> None:
            heard[rank] = lost
            both.wait(timeout=10)

        return on_silence

    store = distributed.HashStore()
    beats = [Heartbeat(store, rank, 3, 0.2, silence_of(rank)) for rank in range(2)]
    for beat in beats:
        beat.moved()
    both.wait(timeout=10)
    for beat in beats:
        beat.stop()
    assert heard == {0: [2], 1: [2]}


@pytest.mark.parametrize("leaves", [False, True])
def test_a_rank_that_waits_for_one_that_left_is_ended_unless_it_leaves_itself(
    leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its main thread hangs in a collective; the other has told what happened, and the store closes soon."""
    monkeypatch.setattr(heartbeat, "BEAT_EVERY_S", 0.02)
    monkeypatch.setattr(heartbeat, "LEFT_BEHIND_S", 0.2)
    store, ended = distributed.HashStore(), threading.Event()
    beat = Heartbeat(store, 1, 2, 60.0, lambda lost: None, ended.set)
    store.add(heartbeat.LEFT, 1)
    if leaves:
        beat.leave()
    assert ended.wait(timeout=1 if leaves else 10) is not leaves
    beat.stop()


def test_a_rank_that_moves_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_EVERY_S", 0.01)
    heard: list[list[int]] = []
    beat = Heartbeat(distributed.HashStore(), 0, 1, 60.0, heard.append)
    beat.moved()
    beat.rest()
    beat.stop()
    assert heard == []
