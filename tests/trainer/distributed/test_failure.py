"""How the ranks leave a training that failed: the cause is named once, and all end."""

import itertools
import threading
from types import SimpleNamespace

import pytest
from torch import distributed
from torch.distributed.distributed_c10d import Store

from trainer.contract import Exit
from trainer.distributed import failure
from trainer.distributed.failure import Failure, Lost, listen, lost_among
from trainer.distributed.heartbeat import NoAnswer, SharedState, Sign, Signs
from trainer.distributed.ranks import Ranks
from trainer.errors import DataError
from trainer.outcome import no_record


def on(rank: int, store: Store, *, nodes: int = 1, launchers: bool = False) -> Failure:
    """The failure of one of four ranks, equally many on each node."""
    local = 4 // nodes
    ranks = Ranks(rank, 4, rank % local, local, rank // local, nodes, store_is_launchers=launchers)
    return Failure(ranks, SharedState(store, rank, 4, 5.0), 8.0, no_record)


@pytest.fixture
def store() -> Store:
    return distributed.HashStore()  # type: ignore[no-any-return, attr-defined]


def hears(monkeypatch: pytest.MonkeyPatch, lost: Lost | None) -> None:
    """Makes a rank that listens find `lost`; None: there is no answer."""

    def listen(shared: SharedState) -> Lost:
        if lost is None:
            raise NoAnswer
        return lost

    monkeypatch.setattr(failure, "listen", listen)


@pytest.mark.parametrize(
    ("lost", "named"),
    [
        (Lost(), "the 4 ranks lost contact, though all are still running (Connection reset)"),
        (Lost(dead=(1, 3), hung=(2,)), "ranks 1, 3 of 4 died or hung "),
        (Lost(hung=(2,)), "rank 2 of 4 died or hung "),
    ],
)
def test_a_failed_collective_is_explained_once(
    lost: Lost, named: str, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hears(monkeypatch, lost)
    first, second = (on(rank, store).lost_connection("Connection reset\nby peer") for rank in (0, 2))
    assert str(first).startswith(named)
    assert (first.is_reported, second.is_reported) == (True, False)
    assert capsys.readouterr().err == f"error: {first}\n"


@pytest.mark.parametrize(
    ("launcher_reports", "asked", "lost", "reported"),
    [
        pytest.param(True, True, Lost(dead=(2,)), "", id="it has asked, and will say which signal"),
        pytest.param(True, False, Lost(dead=(2,)), "rank 2", id="it is another node's"),
        pytest.param(False, True, Lost(dead=(2,)), "rank 2", id="it starts the ranks again without a word"),
        pytest.param(True, True, Lost(hung=(2,)), "rank 2", id="it does not see who hangs"),
    ],
)
def test_a_dead_rank_is_reported_by_its_torchrun_or_else_by_another_rank(
    launcher_reports: bool,
    asked: bool,
    lost: Lost,
    reported: str,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hears(monkeypatch, lost)
    ranks = Ranks(1, 4, 1, 4, launcher_reports=launcher_reports)
    rank = Failure(ranks, SharedState(store, 1, 4, 5.0), 8.0, no_record, lambda: asked)
    error = rank.lost_connection("Connection closed by peer")
    assert (error.code, error.is_mine_to_report) == (Exit.MACHINE, bool(reported))
    assert capsys.readouterr().err.partition(" of 4")[0] == (f"error: {reported}" if reported else "")


@pytest.mark.parametrize(
    ("error", "code"), [(DataError("unreadable image."), Exit.DATA), (ValueError("boom"), Exit.MACHINE)]
)
def test_the_others_end_in_silence_and_with_the_code_of_the_cause(
    error: Exception, code: int, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """They do not even listen, and so never take rank 0, which leaves with the store, for lost."""
    on(0, store).explain(error)
    capsys.readouterr()
    follower = on(2, store).lost_connection("Connection closed by peer")
    assert (follower.code, follower.is_mine_to_report) == (code, False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("nodes", "launchers", "speaker", "who"),
    [(1, False, 1, "rank 0 of 4"), (2, False, 2, "rank 0 of 4"), (1, True, 0, "the launcher of rank 0")],
)
def test_one_rank_reports_where_the_store_is_gone(
    nodes: int,
    launchers: bool,
    speaker: int,
    who: str,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hears(monkeypatch, None)
    reported = [
        on(r, store, nodes=nodes, launchers=launchers).lost_connection("timed out").is_reported for r in range(4)
    ]
    assert reported == [rank == speaker for rank in range(4)]
    assert capsys.readouterr().err.startswith(f"error: {who} died or hung ")


def test_rank_0_keeps_the_store_until_the_living_have_left(store: Store) -> None:
    """A rank that found it closed would take rank 0 for the one that died."""
    head = on(0, store)
    head.lost = Lost(dead=(2, 3))
    leaving = threading.Thread(target=head.wait_for_peers)
    leaving.start()
    leaving.join(timeout=0.3)
    assert leaving.is_alive()
    on(1, store).wait_for_peers()
    leaving.join(timeout=5)
    assert not leaving.is_alive()


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


def test_who_listens_waits_until_the_others_have_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks notice within a moment of each other; one that notices first must not take the second for the cause."""
    store = distributed.HashStore()
    ranks = [SharedState(store, rank, 3, 5.0) for rank in range(3)]
    beats = itertools.count(1)

    def all_beat(seconds: float) -> None:
        beat = next(beats)
        for shared, gave_up in zip(ranks, (True, beat > 1, False), strict=True):
            shared.beat(Sign(beat, 4, gave_up))

    all_beat(0.0)
    monkeypatch.setattr(failure, "time", SimpleNamespace(sleep=all_beat))
    assert listen(ranks[0]) == Lost(hung=(2,))
