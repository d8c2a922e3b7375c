"""With any strategy on any number of ranks a stopped run ends where an unbroken one does; measuring changes nothing."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.parts import config, differing, state, trained
from tests.trainer.ranks_here import on_ranks
from trainer.config import Batches
from trainer.distributed.session import Session
from trainer.metrics.log import Journal, JsonLines
from trainer.metrics.progress import Bar

# Each with momentum, a learning rate that changes, dropout and batch norm.
STRATEGIES: dict[str, dict[str, Any]] = {
    "single": {"strategy": "single", "ema_decay": 0.9},
    "ddp": {"strategy": "ddp", "ema_decay": 0.9, "clip_norm": 1.0},
    "ddp accumulating": {"strategy": "ddp", "accumulate": 2},
    "ddp static": {"strategy": "ddp", "static_graph": True, "gradient_as_bucket_view": False},
    "ddp bf16": {"strategy": "ddp", "comm_hook": "bf16"},
    "ddp powersgd": {"strategy": "ddp", "comm_hook": "powersgd"},
    "fsdp": {"strategy": "fsdp", "ema_decay": 0.9},
    "fsdp accumulating": {"strategy": "fsdp", "accumulate": 2, "optimizer": "adamw", "lr": 1e-3},
}


# On three ranks it matters how DDP lays out its buckets: there are several orders to add numbers up in.
ON_RANKS = {1: list(STRATEGIES), 3: ["ddp accumulating", "ddp powersgd", "fsdp", "fsdp accumulating"]}


def kept(folder: Path) -> dict[str, Any]:
    """What the newest checkpoint holds, without what only says how long something took or where it is."""
    whole = state(folder)
    progress = {name: value for name, value in whole["progress"].items() if name not in ("seconds", "best")}
    return {name: whole[name] for name in ("model", "optimizer", "ema", "ranks")} | {"progress": progress}


# ---- stopped and resumed


def broken_and_unbroken(
    session: Session, folder: Path, names: Iterable[str], stops: Iterable[int]
) -> dict[str, list[str]]:
    """By strategy, what differs in the end between a run and one that was stopped after so many updates."""
    found = {}
    for name in names:
        settings = config(**STRATEGIES[name], cache_dir=folder / "cache")
        trained(session, settings, folder / name / "unbroken")
        for stop_at in (*stops, float("inf")):
            trained(session, settings, folder / name / "broken", stop_at=stop_at)
        if session.ranks.is_head:
            found[name] = differing(kept(folder / name / "unbroken"), kept(folder / name / "broken"))
    return found


def assert_resumes(ranks: int, folder: Path, names: list[str], *stops: int) -> None:
    assert on_ranks(ranks, broken_and_unbroken, folder, names, stops)[0] == {name: [] for name in names}


def test_two_ranks_resume_bit_for_bit(tmp_path: Path) -> None:
    assert_resumes(2, tmp_path, ["ddp", "fsdp"], 13)


@pytest.mark.slow("a stopped run resumes bit for bit with every strategy on one and three ranks")
@pytest.mark.parametrize("ranks", ON_RANKS)
def test_any_number_of_ranks_resumes_bit_for_bit(ranks: int, tmp_path: Path) -> None:
    assert_resumes(ranks, tmp_path, ON_RANKS[ranks], 3, 13)  # PowerSGD compresses from the tenth update on


# ---- measured or not

UNMEASURED = {"probe_steps": 0, "log_every": 50, "checkpoint_every_s": 1e6, "eval_every": 2, "ema_decay": None}


MEASURED = {
    "probe_steps": 2, "log_every": 1, "checkpoint_every_s": 1e-6, "eval_every": 1, "eval_batch_size": 3,
    "ema_decay": 0.9, "progress": True,
}  # fmt: skip


def weights(session: Session, folder: Path, strategy: str, measured: dict[str, Any]) -> dict[str, Any]:
    settings = config(**(STRATEGIES[strategy] | UNMEASURED | measured), cache_dir=folder.parent / "cache")
    journal = None
    folder.mkdir(parents=True, exist_ok=True)
    if session.ranks.is_head and measured:
        journal = Journal([JsonLines(folder / "metrics.jsonl", 0)])
    bar = Bar(session.ranks.is_head and "progress" in measured)
    trained(session, settings, folder, bar=bar, journal=journal)
    if journal:
        journal.close()
    whole = state(folder) if session.ranks.is_head else {}
    return {name: whole.get(name) for name in ("model", "optimizer", "ranks")}


def changed_by_measuring(
    session: Session, folder: Path, names: Iterable[str], ways: dict[str, dict[str, Any]]
) -> dict[str, list[str]]:
    """By strategy and what is measured, what it changes in the weights, the optimizer and the ranks' own state."""
    found = {}
    for name in names:
        plain = weights(session, folder / name, name, {})
        for way, measured in ways.items():
            found[f"{name}, {way}"] = differing(plain, weights(session, folder / f"{name} {way}", name, measured))
    return found


def test_measuring_changes_nothing(tmp_path: Path) -> None:
    found = on_ranks(2, changed_by_measuring, tmp_path, ["ddp", "fsdp"], {"all": MEASURED})[0]
    assert found == {"ddp, all": [], "fsdp, all": []}


# ---- PowerSGD's memory on another number of ranks


def anew(session: Session, folder: Path, first: int, *ranks_of_powersgd: int) -> list[list[str]]:
    """What could not be restored, by part: each trains an update more, with another rank of PowerSGD."""
    found = []
    for stop_at, powersgd_rank in enumerate(ranks_of_powersgd, start=first):
        ours = config(**STRATEGIES["ddp powersgd"], powersgd_rank=powersgd_rank, cache_dir=folder / "cache")
        found.append(trained(session, ours, folder / "run", stop_at=stop_at)[1])
    return found


def test_powersgd_starts_anew_where_its_errors_do_not_fit_and_says_so(tmp_path: Path) -> None:
    on_ranks(2, anew, tmp_path, 11, 2)
    begins = "--comm-hook powersgd restarts its error feedback, because the checkpoint's is "
    (found,) = on_ranks(1, anew, tmp_path, 12, 2, 2, 1)
    assert found == [[begins + "of 2 ranks, not 1"], [], [begins + "for another --powersgd-rank"]]


# ---- another number of ranks


def places(session: Session, folder: Path, batches: Batches, stop_at: float) -> list[int]:
    """The places in the order of its two epochs that this rank trains on."""
    settings = config(
        global_batch_size=None, batch_size=batches.per_replica, accumulate=batches.accumulate, cache_dir=folder,
        strategy="ddp",
    )  # fmt: skip
    seen: list[int] = []
    trained(session, settings, folder / "run", stop_at=stop_at, seen=seen)
    return seen


ROUTES = {
    "3 to 2 to 1": [(Batches(5, 1, 3), 3), (Batches(4, 2, 2), 9), (Batches(7, 1, 1), float("inf"))],
    "4 to 1 to 2": [(Batches(2, 4, 4), 5), (Batches(11, 1, 1), 16), (Batches(1, 7, 2), float("inf"))],
}


def assert_once(route: list[tuple[Batches, float]], folder: Path) -> None:
    seen: list[int] = []
    for batches, stop_at in route:
        seen += [place for rank in on_ranks(batches.replicas, places, folder, batches, stop_at) for place in rank]
    size, last = 24 * 8, route[-1][0].per_update
    for epoch in (0, 1):
        of_epoch = sorted(place - epoch * size for place in seen if place // size == epoch)
        assert of_epoch == list(range(len(of_epoch)))  # each once, and none left out
        assert size - len(of_epoch) < max(batches.per_update for batches, _ in route)
    assert size - len(of_epoch) < last


def test_ranks_that_become_fewer_see_each_image_once(tmp_path: Path) -> None:
    assert_once(ROUTES["3 to 2 to 1"], tmp_path)


@pytest.mark.slow("runs that go on with more or fewer ranks see each image of an epoch once")
def test_ranks_that_become_more_or_fewer_see_each_image_once(tmp_path: Path) -> None:
    assert_once(ROUTES["4 to 1 to 2"], tmp_path)
