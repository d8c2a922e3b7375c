"""Errors a user can meet.  Each message says what was given, what is allowed and what to do.

The tree, with the exit code each one ends the process with:

* TrainerError
  + SettingsError      2  a setting, or two that contradict each other
  + DataError          3  the data set is missing, damaged or of the wrong shape
  + TrainingError      5  the training itself went wrong: NaN, out of memory
  + MachineError       6  disk, network or another rank: may work on another try
    - CheckpointError  6  no readable checkpoint where one must be
    - FullDisk         7  no room to write: will fail again until there is some
  + Interrupted       75  asked to stop; everything is saved

A traceback means a bug of ours, never the user's mistake.
"""

import errno
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trainer.contract import Exit

# Who else is told why the process ends: here and not passed down, for a thread tells where the main one hangs.
_listeners: list[Callable[[int, str], None]] = []


class TrainerError(Exception):
    """Something the user can act on.  Its text is shown as it is, without a traceback."""

    code: int = Exit.BUG
    # Set by a session: whether this rank is the one that tells the user; None: not yet, or there was no session.
    is_mine_to_tell: bool | None = None

    def _render_traceback_(self) -> list[str]:
        """What IPython shows, in notebooks too."""
        return [f"{type(self).__name__}: {self}"]


class SettingsError(TrainerError):
    code = Exit.SETTINGS


class DataError(TrainerError):
    code = Exit.DATA


class TrainingError(TrainerError):
    code = Exit.TRAINING


class MachineError(TrainerError):
    code = Exit.MACHINE


class CheckpointError(MachineError):
    pass


class FullDisk(MachineError):
    code = Exit.DISK


class Interrupted(TrainerError):
    code = Exit.INTERRUPTED


def is_full(error: OSError) -> bool:
    """Whether the disk, or what this user may have of it, was too small."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def not_written(error: OSError, sentence: str) -> MachineError:
    """`sentence` as the error for a file that could not be written."""
    return FullDisk(sentence) if is_full(error) else MachineError(sentence)


def tell(code: int, sentence: str) -> None:
    """Says why this process ends with `code`: to the user, and to whoever listens."""
    # One write, where print makes two if Python is unbuffered: torchrun and mpirun mix the ranks' output in between.
    sys.stderr.write((sentence if code == Exit.INTERRUPTED else f"error: {sentence}") + "\n")
    sys.stderr.flush()
    for listener in _listeners:
        listener(code, sentence)


@contextmanager
def told_to(listener: Callable[[int, str], None]) -> Iterator[None]:
    """For as long as the block runs, `listener` hears the exit code and the sentence of what tell() says."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
