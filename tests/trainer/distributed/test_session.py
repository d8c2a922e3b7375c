"""What the ranks can say to each other, and what a failure of one does to the others."""

import errno
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import distributed

from tests import warm
from tests.trainer.ranks_here import alone, on_ranks
from trainer.distributed.failure import Lost, listen
from trainer.distributed.ranks import Ranks
from trainer.distributed.session import Session, session
from trainer.errors import DataError, TrainerError
from trainer.outcome import read, recorded


def conversation(session: Session, folder: Path) -> dict[str, object]:
    """One of everything, so that the ranks are started once.  Where nothing is unpickled, nothing foreign can run."""
    rank = session.ranks.rank
    if session.link:
        distributed.distributed_c10d._unpickler = None
    seen: list[bool] = []

    def download() -> str:
        seen.append((folder / "data").exists())
        (folder / "data").touch()
        return f"loaded by {rank}"

    def fail() -> None:
        raise DataError("no space")

    def failure(attempt) -> str:  # type: ignore[no-untyped-def]
        try:
            attempt()
        except TrainerError as error:
            return f"{type(error).__name__}: {error}".partition(";")[0]
        return "none"

    def reports(attempt) -> bool | None:  # type: ignore[no-untyped-def]
        try:
            attempt()
        except TrainerError as error:
            return error.is_mine_to_report
        return None

    def fill() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "model.pt")

    speaks = session.link is None or session.link.shared.is_first_to_report()
    return {
        "full disk": failure(lambda: session.on_head(fill)),
        "reports the head's disk": reports(lambda: session.on_head(fill)),
        "sum": session.sum(torch.tensor([float(rank), 1.0])).tolist(),
        "highest": session.highest([float(rank), -float(rank)]),
        "gathered": session.gather({"rank": rank, "names": ["\udcff"] * rank}),
        "gathered on head": [
            {"sums": part["sums"].tolist()} for part in session.gather_on_head({"sums": torch.arange(rank + 1)})
        ],
        "broadcast": session.broadcast(b"weights" * 1000 if rank == 0 else None),
        "nothing broadcast": session.broadcast(None),
        "once per node": session.once_per_node(download),
        "was there": seen,
        "on head": session.on_head(lambda: "head"),
        "failed on head": failure(lambda: session.on_head(fail)),
        "failed once per node": failure(lambda: session.once_per_node(fail)),
        "reporters": session.sum(torch.tensor([float(speaks)])).tolist(),
        "lost": listen(session.link.shared) if session.link else Lost(),
    }


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    return on_ranks(3, conversation, tmp_path_factory.mktemp("node"))


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("sum", [[3.0, 3.0]] * 3),
        ("highest", [[2.0, 0.0]] * 3),
        ("gathered", [[{"rank": rank, "names": ["\udcff"] * rank} for rank in range(3)]] * 3),
        ("broadcast", [b"weights" * 1000] * 3),
        ("nothing broadcast", [None] * 3),
        ("on head", ["head", None, None]),
        ("once per node", ["loaded by 0", "loaded by 1", "loaded by 2"]),
        ("was there", [[False], [True], [True]]),
        ("full disk", ["FullDisk: model.pt: No space left on device"] * 3),
        ("gathered on head", [[{"sums": [0]}, {"sums": [0, 1]}, {"sums": [0, 1, 2]}], [], []]),
        ("reporters", [[1.0]] * 3),
        ("lost", [Lost()] * 3),
        ("reports the head's disk", [True, False, False]),
        ("failed on head", ["DataError: no space"] * 3),
        ("failed once per node", ["DataError: no space"] * 3),
    ],
)
def test_all_ranks_hear_the_same(what: str, expected: list[object], heard: list[dict[str, object]]) -> None:
    assert [answers[what] for answers in heard] == expected


def test_one_process_alone_needs_no_group(tmp_path: Path) -> None:
    answers = conversation(alone(), tmp_path)
    assert (answers["sum"], answers["highest"]) == ([0.0, 1.0], [0.0, 0.0])
    assert answers["gathered"] == [{"rank": 0, "names": []}]
    assert not torch.distributed.is_initialized()


def fail_on_rank_1(ranks: Ranks, folder: Path) -> None:
    """Rank 0 is in a collective that rank 1 never joins."""
    with (
        suppress(TrainerError),
        recorded(lambda: folder / str(ranks.rank)) as record,
        session(ranks, torch.device("cpu"), 20.0, connect=True, record=record) as joined,
    ):
        if not joined.ranks.is_head:
            raise DataError("unreadable image.")
        joined.barrier()


def test_the_outcome_has_the_reason_of_the_rank_that_failed(tmp_path: Path) -> None:
    port = warm.free_port()
    ranks = [Ranks(rank, 2, rank, 2, master_port=port, source="test") for rank in range(2)]
    processes = [warm.start(fail_on_rank_1, rank, tmp_path) for rank in ranks]
    for process in processes:
        process.join(timeout=60)

    outcomes = [read(tmp_path / str(rank)) for rank in range(2)]
    assert [outcome and (outcome.exit_code, outcome.reason) for outcome in outcomes] == [(3, "unreadable image.")] * 2


def leave_slowly(session: Session, folder: Path) -> None:
    """Rank 1 is late to stop its heartbeat; has rank 0, with whose process the store goes, left by then?"""
    assert session.link is not None
    close, stop = distributed.destroy_process_group, session.link.heartbeat.stop

    def close_and_note() -> None:
        (folder / "closed").touch()
        close()

    def stop_late() -> None:
        if not (folder / "seen").exists():
            time.sleep(0.5)  # that something does not happen cannot be waited for
            (folder / "seen").write_text(f"closed: {(folder / 'closed').exists()}")
        stop()

    if session.ranks.is_head:
        distributed.destroy_process_group = close_and_note
    else:
        session.link.heartbeat.stop = stop_late  # type: ignore[method-assign]


def test_rank_0_keeps_the_store_until_no_heartbeat_asks_it(tmp_path: Path) -> None:
    on_ranks(2, leave_slowly, tmp_path)
    assert (tmp_path / "seen").read_text() == "closed: False"
