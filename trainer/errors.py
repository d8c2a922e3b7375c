"""Errors a user can meet.  Each message says what was given, what is allowed and what to do.

The tree, with the exit code each one ends the process with:

* TrainerError
  + SettingsError      2  a setting, or two that contradict each other
  + DataError          3  the data set is missing, damaged or of the wrong shape
  + TrainingError      5  the training itself went wrong: NaN, out of memory
  + MachineError       6  disk, network or another rank: may work on another try
    - CheckpointError  6  no readable checkpoint where one must be
  + Interrupted       75  asked to stop; everything is saved

A traceback means a bug of ours, never the user's mistake.
"""

from trainer.contract import Exit


class TrainerError(Exception):
    """Something the user can act on.  Its text is shown as it is, without a traceback."""

    code: int = Exit.BUG
    # Set by a session: whether this rank is the one that tells the user; None: there was no session.
    is_mine_to_tell: bool | None = None


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


class Interrupted(TrainerError):
    code = Exit.INTERRUPTED
