"""Who is named when ranks stop answering."""

import itertools
from types import SimpleNamespace

import pytest
from torch import distributed

from trainer.distributed import lost
from trainer.distributed.lost import Lost, listen, lost_among, named
from trainer.distributed.notes import Notes, Sign, Signs


def signs(*beats_and_steps: tuple[int, int] | tuple[int, int, bool]) -> Signs:
    """Of rank 0, 1, ...: beat, step, and whether it has given up."""
    return {rank: Sign(beat, step, bool(left)) for rank, (beat, step, *left) in enumerate(beats_and_steps)}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(signs((5, 9), (5, 9), (7, 9)), signs((8, 9), (8, 9), (7, 9)), Lost(dead=(2,)), id="beats no more"),
        pytest.param(signs((5, 9), (5, 9)), signs((8, 9), (8, 9)), Lost(dead=(2,)), id="never came"),
        pytest.param(signs((5, 9), (5, 9), (5, 8)), signs((8, 9), (8, 9), (8, 8)), Lost(hung=(2,)), id="is behind"),
        pytest.param(signs((5, 9), (5, 9), (5, 9)), signs((8, 9), (8, 9), (8, 9)), Lost(), id="all wait for a GPU"),
        pytest.param(signs((5, 0), (5, 0), (5, 0)), signs((8, 0), (8, 0), (8, 0)), Lost(), id="still getting ready"),
        pytest.param(
            signs((5, 9, True), (5, 9, True), (5, 9)), signs((8, 9, True), (8, 9, True), (8, 9)), Lost(hung=(2,)),
            id="hangs in the collective for which the others gave up",
        ),
        pytest.param(
            signs((5, 9, True), (5, 9), (5, 8)), signs((8, 9, True), (8, 9), (8, 8)), Lost(hung=(2,)),
            id="is behind, and one that is not has not given up yet",
        ),
        pytest.param(
            signs((5, 9, True), (5, 9, True), (5, 9, True)), signs((8, 9, True), (8, 9, True), (8, 9, True)), Lost(),
            id="all gave up",
        ),
    ],
)  # fmt: skip
def test_the_dead_are_named_and_else_those_that_the_others_wait_for(
    before: Signs, after: Signs, expected: Lost
) -> None:
    assert lost_among(before, after, world_size=3, me=0) == expected


def test_a_rank_that_hangs_names_itself_where_nobody_gives_up() -> None:
    before, after = signs((5, 8), (5, 9)), signs((8, 8), (8, 9))
    assert lost_among(before, after, world_size=2, me=0) == Lost(hung=(0,))


def test_who_listens_waits_until_the_others_have_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks notice within a moment of each other; one that notices first must not take the second for the cause."""
    store = distributed.HashStore()
    ranks = [Notes(store, rank, 3, 5.0) for rank in range(3)]
    beats = itertools.count(1)

    def all_beat(seconds: float) -> None:
        beat = next(beats)
        for notes, gave_up in zip(ranks, (True, beat > 1, False), strict=True):
            notes.beat(Sign(beat, 4, gave_up))

    all_beat(0.0)
    monkeypatch.setattr(lost, "time", SimpleNamespace(sleep=all_beat))
    assert listen(ranks[0]) == Lost(hung=(2,))


def test_lost_ranks_are_named_in_words() -> None:
    assert (named([1], 4), named([1, 3], 4)) == ("rank 1 of 4", "ranks 1, 3 of 4")
