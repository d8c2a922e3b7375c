"""When the ranks look at each other, and what they decide."""

import pytest
import torch

from tests.trainer.ranks_here import alone, on_ranks
from trainer.distributed.agreement import Agreement, Interrupt, Verdict
from trainer.distributed.session import Session
from trainer.metrics.counters import NEVER


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def looks(step_s: float, updates: int) -> list[int]:
    """The updates after which a run with steps of `step_s` seconds takes a look."""
    clock, taken = Clock(), []
    agreement = Agreement(alone(), Interrupt(), clock, save_every_s=1e9, at_most_every=50)
    for update in range(1, updates + 1):
        clock.now += step_s
        if agreement.due():
            agreement.reach(torch.tensor(float(NEVER)))
            taken.append(update)
    return taken


@pytest.mark.parametrize(
    ("step_s", "updates", "taken"),
    [(0.1, 25, [1, 11, 21]), (2.0, 3, [1, 2, 3]), (1e-6, 120, [1, 51, 101])],
    ids=["about once a second", "slow steps", "log_every bounds the gap"],
)
def test_ranks_look_at_each_other(step_s: float, updates: int, taken: list[int]) -> None:
    assert looks(step_s, updates) == taken


def test_a_checkpoint_is_due_by_the_clock() -> None:
    clock = Clock()
    agreement = Agreement(alone(), Interrupt(), clock, save_every_s=10.0, at_most_every=50)
    clock.now = 9.0
    assert not agreement.reach(torch.tensor(float(NEVER))).save
    clock.now = 10.0
    assert agreement.reach(torch.tensor(float(NEVER))).save
    agreement.saved()
    clock.now = 11.0
    assert not agreement.reach(torch.tensor(float(NEVER))).save


def one_rank_has_news(session: Session) -> Verdict:
    rank = session.ranks.rank
    interrupt = Interrupt()
    interrupt.requested = rank == 1
    agreement = Agreement(session, interrupt, Clock(), save_every_s=1e9, at_most_every=50)
    return agreement.reach(torch.tensor([NEVER, 17.0, 23.0][rank]))


def test_what_one_rank_knows_all_ranks_do() -> None:
    assert on_ranks(3, one_rank_has_news) == [Verdict(stop=True, save=False, bad_step=17)] * 3
