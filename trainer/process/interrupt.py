"""A request to save and leave: SIGTERM (a spot notice, Slurm, torchrun, docker stop) or Ctrl-C."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Whether this process has been asked to stop.  The training checks it between updates."""

    def __init__(self, tells: bool = False) -> None:
        self.requested = False
        self._tells = tells

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt  # the second Ctrl-C does not wait
        if number == signal.SIGINT and self._tells:
            # Not print: a signal may arrive in the middle of one.
            os.write(2, b"\nstopping and saving; press Ctrl-C again to quit without saving\n")
        self.requested = True


@contextmanager
def watch(*, tells: bool) -> Iterator[Interrupt]:
    """Handles requests to stop inside the block.  Main thread only: signal handlers can be set nowhere else.

    tells: acknowledge Ctrl-C with a line, since saving may take a moment.
    """
    interrupt = Interrupt(tells)
    watched = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)  # USR1: sbatch --signal=USR1@120
    before = {number: signal.signal(number, interrupt._on_signal) for number in watched}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
