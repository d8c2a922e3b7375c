"""Signals that ask a launcher to exit, and how they are ignored while it removes a job."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from launch.core.perform import Say


class Hangup(BaseException):
    """The terminal was closed, or somebody sent SIGTERM.  Like KeyboardInterrupt, not an Exception."""


@contextmanager
def hangups() -> Iterator[None]:
    """Raises Hangup in the block on SIGTERM, and on SIGHUP unless nohup ignores it."""

    def hang_up(signum: int, frame: FrameType | None) -> None:
        raise Hangup(signal.Signals(signum).name)

    with _handled(hang_up):
        yield


@contextmanager
def hangups_ignored() -> Iterator[None]:
    """Ignores SIGHUP and SIGTERM inside the block: shells and kernels send more than one signal."""
    with _handled(signal.SIG_IGN):
        yield


@contextmanager
def _handled(handler: "signal._HANDLER") -> Iterator[None]:
    numbers = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_IGN]
    try:
        before = {number: signal.signal(number, handler) for number in numbers}
    except ValueError:  # not in the main thread, as in a notebook: signals are not ours to handle
        before = {}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def unless_gone(say: Say) -> Say:
    """`say` that does not fail when the terminal or the pipe is gone."""

    def said(text: str) -> None:
        try:
            say(text)
        except (OSError, ValueError):
            return

    return said
