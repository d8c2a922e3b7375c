"""Exit of all ranks after a failed training, with one error message.

A rank that fails records the reason in the store for the others; if a rank is lost, the first rank to notice reports
it.  All other ranks print nothing and exit with the same code.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from trainer.contract import Exit
from trainer.distributed.heartbeat import NoAnswer, SharedState, Signs
from trainer.distributed.ranks import Ranks
from trainer.errors import Interrupted, MachineError, TrainerError, error_with, report_end
from trainer.outcome import Record

# How long rank 0 keeps the store open for ranks that have not yet noticed that the training failed.
WAIT_FOR_PEERS_S = 10.0
# How long a rank waits for failed ranks to exit first: mpirun and torchrun blame the first to exit.
LEAVE_FIRST_S = 2.0
_ENDED = "another rank ended the training; its output says why."
# Long enough for a living rank's heartbeat to change, even on a busy machine.
LISTEN_S = 3.5
# Maximum number of times to listen while more ranks are still giving up.
LISTENINGS = 3


@dataclass(frozen=True)
class Lost:
    """Lost ranks.  dead: without a heartbeat; hung: alive, but the others wait for them."""

    dead: tuple[int, ...] = ()
    hung: tuple[int, ...] = ()

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks to blame: the dead ones, as another rank may only seem to hang because of them."""
        return self.dead or self.hung


@dataclass
class Failure:
    """The failure as seen by one rank.

    record: called with the reason if no exception of this rank carries it; asked: whether this process has been asked
    to leave.
    """

    ranks: Ranks
    shared: SharedState
    timeout_s: float
    record: Record
    asked: Callable[[], bool] = lambda: False
    happened: bool = False
    paused_s: float = 0.0
    lost: Lost = field(default_factory=Lost)
    _speaking: threading.Lock = field(default_factory=threading.Lock)
    _has_spoken: bool = False
    _followed: TrainerError | None = None  # how this rank ends because another has left

    def explain(self, error: Exception) -> None:
        """Record this rank's own failure for the others, and report it unless another rank already has."""
        self.happened = True
        if not isinstance(error, TrainerError):
            with suppress(NoAnswer):
                self.shared.explain(Exit.BUG, f"{type(error).__name__}: {error}")
            return
        try:
            error.is_mine_to_report = error.is_mine_to_report is not False and self.shared.is_first_to_report()
            if error.is_mine_to_report:
                self.shared.explain(error.code, str(error))
        except NoAnswer:
            # No other rank can report this failure, except an interruption, which all ranks share.
            error.is_mine_to_report = self.ranks.is_head or not isinstance(error, Interrupted)
        self._report_if_mine(error)

    def lost_connection(self, problem: str) -> TrainerError:
        """The error for a collective that failed with `problem`: the reason another rank recorded, or which is lost.

        Takes seconds, because it waits for signs of life from the others.
        """
        self.happened = True
        try:
            if ended := self._reason_of_another():
                return ended
            self.lost = listen(self.shared)
            if ended := self._reason_of_another():
                return ended
            raised = MachineError(self._why(problem))
            raised.is_mine_to_report = not self._launcher_reports and self.shared.is_first_to_report()
            if raised.is_mine_to_report:
                self.shared.explain(raised.code, str(raised))
        except NoAnswer:
            if self._followed is not None:
                return self._followed
            raised = MachineError(self._why_no_answer())
            raised.is_mine_to_report = self._reports_without_the_store
        self._report_if_mine(raised)
        return raised

    def wait_for_peers(self) -> None:
        """Record that this rank leaves.  Rank 0, which may host the store, waits until all living ranks have left:
        a rank that cannot reach the store would blame rank 0.
        """
        with suppress(NoAnswer):
            self.shared.leave()
            until, living = time.monotonic() + WAIT_FOR_PEERS_S, self.ranks.world_size - len(self.lost.dead)
            while self.ranks.is_head and self.shared.left() < living and time.monotonic() < until:
                time.sleep(0.05)  # a store can be waited on for a key, not for a count

    # ---- called by the heartbeat

    def paused(self, seconds: float) -> None:
        """Record that this process was suspended, so that it does not blame the others for leaving."""
        self.paused_s = max(self.paused_s, seconds)

    def stuck(self) -> None:
        """Report the lost rank and exit, because the main thread is blocked waiting for a GPU."""
        try:
            self.lost = listen(self.shared)
            ended = self._reason_of_another()
            mine = ended is None and self.shared.is_first_to_report()
        except NoAnswer:
            self.unanswered()
            return
        sentence = self._died_or_hung(named(self.lost.ranks, self.ranks.world_size) if self.lost.ranks else "some rank")
        if ended is None:
            self.record(Exit.MACHINE, sentence)
            with suppress(NoAnswer):
                self.shared.explain(Exit.MACHINE, sentence)
        if mine:
            self._say(Exit.MACHINE, sentence)
        self.wait_for_peers()
        end_process(ended.code if ended else Exit.MACHINE)

    def left_behind(self) -> None:
        """Exit, without printing anything, because another rank has left."""
        ended: TrainerError | None = None
        with suppress(NoAnswer):
            ended = self._reason_of_another()
        if ended is None:
            self.record(Exit.MACHINE, _ENDED)
            ended = error_with(Exit.MACHINE, _ENDED)
            ended.is_mine_to_report = False
        # Set before the other rank exits and its store closes: the main thread would report it as lost.
        self._followed = ended
        self.wait_for_peers()
        time.sleep(LEAVE_FIRST_S)
        end_process(ended.code)

    def unanswered(self) -> None:
        """Exit because the store's host is gone."""
        sentence = self._why_no_answer()
        self.record(Exit.MACHINE, sentence)
        if self._reports_without_the_store:
            self._say(Exit.MACHINE, sentence)
        else:
            time.sleep(LEAVE_FIRST_S)
        end_process(Exit.MACHINE)

    # ----

    @property
    def _launcher_reports(self) -> bool:
        """Whether torchrun reports the failure: it saw who died, and by which signal, which this rank cannot know.

        torchrun asks the others of its node to leave as soon as one has died; ranks of other nodes must report.
        """
        return bool(self.lost.dead) and self.ranks.launcher_reports and self.asked()

    def _report_if_mine(self, error: TrainerError) -> None:
        """Report `error` now, as waiting for the others to leave may take seconds."""
        if error.is_mine_to_report and not error.is_reported:
            self._say(error.code, str(error))
            error.is_reported = True

    def _say(self, code: int, sentence: str) -> None:
        """Report the failure at most once, as the heartbeat and main threads may both detect it."""
        with self._speaking:
            if not self._has_spoken:
                self._has_spoken = True
                say(code, sentence)

    def _reason_of_another(self) -> TrainerError | None:
        """The reason recorded by another rank, as an error that this rank does not report again; None if there is none.

        It has the same exit code, except that a bug of another rank is a MachineError here.
        """
        explanation = self.shared.explanation()
        if explanation is None:
            return None
        code, reason = explanation
        self.record(code, reason)
        ended = error_with(Exit.MACHINE if code == Exit.BUG else code, reason)
        ended.is_mine_to_report = False
        return ended

    def _why(self, problem: str) -> str:
        world = self.ranks.world_size
        if self._was_stopped:
            return self._why_stopped()
        if not self.lost.ranks:
            return (
                f"the {world} ranks lost contact, though all are still running ({problem.splitlines()[0]}); check the "
                "network; start again to resume from the last checkpoint."
            )
        return self._died_or_hung(named(self.lost.ranks, world))

    def _why_no_answer(self) -> str:
        if self._was_stopped:
            return self._why_stopped()
        return self._died_or_hung(
            "the launcher of rank 0" if self.ranks.store_is_launchers else named([0], self.ranks.world_size)
        )

    def _died_or_hung(self, who: str) -> str:
        limit = f"no answer; limit {self.timeout_s:g} s"
        return f"{who} died or hung ({limit}); start again to resume from the last checkpoint."

    @property
    def _was_stopped(self) -> bool:
        return self.paused_s > self.timeout_s

    def _why_stopped(self) -> str:
        me = named([self.ranks.rank], self.ranks.world_size)
        return (
            f"{me} was stopped for {self.paused_s:.0f} s, longer than the limit of {self.timeout_s:g} s; "
            "start again to resume from the last checkpoint."
        )

    @property
    def _reports_without_the_store(self) -> bool:
        """Whether this rank reports if the store is unreachable: the first rank of node 1, or the lowest one left."""
        if self._was_stopped:
            return True
        if self.ranks.nodes > 1:
            return self.ranks.node_rank == 1 and self.ranks.local_rank == 0
        return self.ranks.rank == (0 if self.ranks.store_is_launchers else 1)


def say(code: int, sentence: str) -> None:
    """Report why this process ends, after flushing standard output."""
    with suppress(OSError):
        sys.stdout.flush()
    report_end(code, sentence)


def end_process(code: int) -> None:
    """Exit immediately, even if the main thread hangs in a driver."""
    os._exit(code)


def listen(shared: SharedState) -> Lost:
    """Find the lost ranks by heartbeat.  Takes LISTEN_S or longer, while more ranks give up.  Raises NoAnswer."""
    before = shared.signs()
    lost = Lost()
    for _ in range(LISTENINGS):
        time.sleep(LISTEN_S)
        after = shared.signs()
        lost = lost_among(before, after, shared.world_size, shared.rank)
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
