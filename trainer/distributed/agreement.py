"""Regular agreement of all ranks on whether to stop, save or continue.

A signal reaches one rank, a clock runs on one rank, a loss explodes on one rank; yet all must stop at
the same update or the next collective hangs.  So they regularly exchange a few numbers.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from torch import Tensor

from trainer.distributed.session import Session
from trainer.metrics.counters import NEVER

# Reaching one waits for the device, so there is about one a second: often enough for a two-minute spot notice.
REACH_EVERY_S = 1.0
# Half of what torchrun leaves a process between SIGTERM and SIGKILL.
SAVE_BEFORE_EVALUATION_S = 15.0


class Interrupt:
    """Whether this process has been asked to stop.  The training checks it between updates."""

    def __init__(self, acknowledges: bool = False) -> None:
        self.requested = False
        self._acknowledges = acknowledges

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt  # the second Ctrl-C does not wait
        if number == signal.SIGINT and self._acknowledges:
            # Not print: a signal may arrive in the middle of one.
            os.write(2, b"\nstopping and saving; press Ctrl-C again to quit without saving\n")
        self.requested = True


@contextmanager
def watch(*, acknowledges: bool) -> Iterator[Interrupt]:
    """Handle stop signals inside the block.  Main thread only: signal handlers can be set nowhere else.

    acknowledges: answer Ctrl-C with a line, since saving may take a moment.
    """
    interrupt = Interrupt(acknowledges)
    watched = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)  # USR1: sbatch --signal=USR1@120
    before = {number: signal.signal(number, interrupt._on_signal) for number in watched}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class Verdict:
    """The decision of all ranks.  bad_step: the first update with a loss that is not finite, or None."""

    stop: bool
    save: bool
    bad_step: int | None


class Agreement:
    """Schedule the agreements.  All ranks reach each at the same update, since they agree on the gap to the next."""

    def __init__(
        self,
        session: Session,
        interrupt: Interrupt,
        clock: Callable[[], float],
        *,
        save_every_s: float,
        at_most_every: int,
    ) -> None:
        self._session, self._interrupt, self._clock = session, interrupt, clock
        self._save_every_s, self._at_most_every = save_every_s, at_most_every
        self._saved_at = self._reached_at = clock()
        self._since, self._gap = 0, 1

    def due(self) -> bool:
        """Count one update; return whether an agreement is due."""
        self._since += 1
        return self._since >= self._gap

    def reach(self, first_bad: Tensor, *, epoch_ends: bool = False) -> Verdict:
        """Agree with all ranks on what to do.  Collective.

        first_bad: () float64 of Totals; reading it waits for the device.  epoch_ends: an evaluation without agreements
        follows, so save sooner.
        """
        self._session.moved()
        now = self._clock()
        step_s = (now - self._reached_at) / max(1, self._since)
        save_every_s = min(self._save_every_s, SAVE_BEFORE_EVALUATION_S) if epoch_ends else self._save_every_s
        stop, save, slowest_s, soonest_bad = self._session.highest([
            float(self._interrupt.requested),
            float(now - self._saved_at >= save_every_s),
            step_s,
            -float(first_bad),  # negated: the highest is the earliest
        ])  # fmt: skip
        self._gap = max(1, min(self._at_most_every, int(REACH_EVERY_S / max(slowest_s, 1e-9))))
        self._since, self._reached_at = 0, now
        bad_step = None if soonest_bad <= -NEVER else int(-soonest_bad)
        return Verdict(stop=stop > 0, save=save > 0, bad_step=bad_step)

    def saved(self) -> None:
        """Reset the timers for checkpoints and updates after writing a checkpoint."""
        self._saved_at = self._reached_at = self._clock()
