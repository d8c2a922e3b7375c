"""Runs a function as the ranks of one job: real processes, real gloo collectives."""

import pickle
import traceback
from collections.abc import Callable
from typing import Any

import torch

from tests import warm
from trainer.distributed.ranks import Ranks
from trainer.distributed.session import Session, session


def on_ranks(world_size: int, function: Callable[..., Any], *args: Any, timeout_s: float = 60.0) -> list[Any]:
    """function(session, *args) on each of `world_size` ranks; their results in rank order."""
    results = warm.queue()
    port = warm.free_port()
    ranks = [Ranks(rank, world_size, rank, world_size, master_port=port, source="test") for rank in range(world_size)]
    processes = [warm.start(_one, rank, results, function, args, timeout_s) for rank in ranks]
    answers = {rank: pickle.loads(answer) for rank, answer in (results.get(timeout=120) for _ in processes)}
    for process in processes:
        process.join(timeout=30)
        assert process.exitcode == 0, f"a rank ended with {process.exitcode}"
    for rank, answer in sorted(answers.items()):
        assert not isinstance(answer, _Failure), f"rank {rank}:\n{answer.text}"
    return [answers[rank] for rank in range(world_size)]


class _Failure:
    def __init__(self, text: str) -> None:
        self.text = text


def _one(ranks: Ranks, results: Any, function: Callable[..., Any], args: tuple[Any, ...], timeout_s: float) -> None:
    torch.set_num_threads(1)
    try:
        with session(ranks, torch.device("cpu"), timeout_s, connect=True) as joined:
            answer = function(joined, *args)
    except BaseException:
        answer = _Failure(traceback.format_exc())
    # As bytes: a tensor would travel as shared memory, which ends with this process.
    results.put((ranks.rank, pickle.dumps(answer)))


def alone() -> Session:
    """The session of a single process."""
    return Session(Ranks(), torch.device("cpu"), 60.0)
