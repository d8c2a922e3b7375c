"""Ends what would hang, so that a test of it fails instead of waiting for ever."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Hangs(BaseException):
    """Not an Exception, nor an OSError as TimeoutError is: nothing takes it for an answer."""


@contextmanager
def ended_after(seconds: int) -> Iterator[None]:
    """Raises Hangs in the block after so many seconds.  Main thread only."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Hangs(f"still there after {seconds} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
