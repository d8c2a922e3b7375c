"""A request to save and leave: SIGTERM (a spot notice, Slurm, torchrun, docker stop) or Ctrl-C."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Whether this process was asked to leave.  The training looks at it between updates."""

    def __init__(self, tells: bool = False) -> None:
        self.requested = False
        self._tells = tells

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt  # a second Ctrl-C means now
        if number == signal.SIGINT and self._tells:
            # Not print: a signal may arrive in the middle of one.
            os.write(2, b"\nsaving; Ctrl-C again ends it at once\n")
        self.requested = True


@contextmanager
def watch(*, tells: bool) -> Iterator[Interrupt]:
    """Listens for the rest of the block.  Main thread only: signal handlers can be set nowhere else.

    tells: answer Ctrl-C with a line, for it may take a moment.
    """
    interrupt = Interrupt(tells)
    watched = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)  # USR1: sbatch --signal=USR1@120
    before = {number: signal.signal(number, interrupt._on_signal) for number in watched}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
