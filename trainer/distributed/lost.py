"""Decides which ranks are lost, from the signs of life that they leave in the notes (notes.py)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.distributed.notes import Notes, Signs

# Long enough for a living rank's beat to change, also on a busy machine.
LISTEN_S = 3.5
# How often at most to listen while more and more ranks give the training up.
LISTENINGS = 3


@dataclass(frozen=True)
class Lost:
    """Ranks that are lost.  dead: whose process shows no sign of life; hung: alive, but the others wait for them."""

    dead: tuple[int, ...] = ()
    hung: tuple[int, ...] = ()

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks to blame: the dead ones, as another rank may only seem to hang because of them."""
        return self.dead or self.hung


def listen(notes: Notes) -> Lost:
    """Finds the lost ranks.  Takes LISTEN_S, or longer while more ranks give up.  Raises NoAnswer."""
    before = notes.signs()
    lost = Lost()
    for _ in range(LISTENINGS):
        time.sleep(LISTEN_S)  # a beat is heard by waiting for it
        after = notes.signs()
        lost = lost_among(before, after, notes.world_size, notes.rank)
        if lost.dead or _is_settled(before, after, lost):
            break
        before = after
    return lost


def lost_among(before: Signs, after: Signs, world_size: int, me: int) -> Lost:
    """The lost ranks, judged from the signs at two moments.  Pure.

    A rank that waits for others in a collective gives up when its time is over; one that hangs does not.  If no rank
    gives up, as when all wait for a GPU, the ranks that are behind the others are lost.
    """
    others = [rank for rank in range(world_size) if rank != me]
    if dead := [rank for rank in others if not _beats(rank, before, after)]:
        return Lost(dead=tuple(dead))
    return Lost(hung=tuple(_hung(after)))


def _hung(signs: Signs) -> list[int]:
    """The hung ranks, if all ranks are alive."""
    waited_for = _staying(signs)
    furthest = max((sign.step for sign in signs.values()), default=0)
    behind = [rank for rank in waited_for if signs[rank].step < furthest]
    some_gave_up = len(waited_for) < len(signs)
    return behind or (waited_for if some_gave_up else [])


def _beats(rank: int, before: Signs, after: Signs) -> bool:
    if rank not in after:
        return False
    return rank not in before or after[rank].beat != before[rank].beat


def _staying(signs: Signs) -> list[int]:
    return sorted(rank for rank, sign in signs.items() if not sign.leaving)


def _is_settled(before: Signs, after: Signs, lost: Lost) -> bool:
    """Whether no more ranks will give up: the ranks notice a lost one within a moment of each other."""
    staying = _staying(after)
    return len(staying) <= 1 or staying == _staying(before) or staying == list(lost.hung)


def named(lost: Sequence[int], world_size: int) -> str:
    """[1, 2] of 4 -> 'ranks 1, 2 of 4'."""
    return f"rank{'s' if len(lost) > 1 else ''} {', '.join(map(str, lost))} of {world_size}"
