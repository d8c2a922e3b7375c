"""Errors shown to users.  Each message says what was given, what is allowed and what to do.

The hierarchy, with exit codes:

* TrainerError
  + SettingsError      2  a setting, or two that contradict each other
  + DataError          3  the data set is missing, damaged or of the wrong shape
  + TrainingError      5  the training itself went wrong: NaN, out of memory
  + MachineError       6  disk, network or another rank: may work on another try
    - CheckpointError  6  no readable checkpoint where one must be
    - FullDisk         7  the disk is full: will fail again until there is space
    - SickNode         8  this machine failed its health check and must be replaced
  + Interrupted       75  asked to stop; everything is saved

A traceback means a bug in the trainer, never a mistake of the user.
"""

import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from trainer.contract import STOPPED, Exit
from trainer.settings.hidden import without_secrets
from trainer.terminal import harmless

# Called with the reason why the process ends.  Global, because a thread may report it while the main thread hangs.
_listeners: list[Callable[[int, str], None]] = []


class TrainerError(Exception):
    """An error that the user can act on.  Its text is shown unchanged, without a traceback."""

    code: int = Exit.BUG
    # Set by a session: whether this rank is the one that reports the error; None: not decided, or no session.
    is_mine_to_report: bool | None = None
    is_reported: bool = False  # the user has seen it already

    def _render_traceback_(self) -> list[str]:
        """What IPython shows, in notebooks too."""
        return [f"{type(self).__name__}: {harmless(without_secrets(str(self)))}"]


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


class SickNode(MachineError):
    code = Exit.SICK


class Interrupted(TrainerError):
    code = Exit.INTERRUPTED


def error_with(code: int, sentence: str) -> TrainerError:
    """An error with exit code `code`, for one that was raised in another process."""
    kinds = (SettingsError, DataError, TrainingError, MachineError, FullDisk, Interrupted)
    kind = next((kind for kind in kinds if kind.code == code), TrainerError)
    error = kind(sentence)
    error.code = code
    return error


def one_line(text: object, most: int = 80) -> str:
    """`text` on one line, printable and at most `most` characters long; for text from flags, files and folders."""
    words = printable(" ".join(str(text)[: 4 * most].split()))
    return words if len(words) <= most else words[: most - 3] + "..."


def printable(text: str) -> str:
    """`text` with characters that are not printable escaped, including line ends; different texts stay different."""
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # how Python represents a byte of a file name that is not UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


def is_full(error: OSError) -> bool:
    """Whether the disk, or the user's quota, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


# The path itself is wrong, so that the same command fails again.
_WRONG_PATH = {
    errno.EACCES, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EPERM,
}  # fmt: skip


def is_wrong_path(error: OSError) -> bool:
    """Whether the path itself is wrong, rather than the disk or the network failing."""
    return error.errno in _WRONG_PATH


def not_writable(folder: Path, error: OSError) -> TrainerError:
    """The error for a folder of results that cannot be made or written to."""
    in_the_way = [path for path in (folder, *folder.parents) if os.path.lexists(path) and not path.is_dir()]
    why = error.strerror
    if in_the_way:
        why = f"{one_line(in_the_way[0], 300)} is not a folder"
    elif error.errno == errno.EISDIR:
        why = f"{one_line(error.filename, 300)} is a folder"
    sentence = f"cannot write to {one_line(folder, 300)} ({why}); choose another --run-dir or --checkpoint-dir."
    return SettingsError(sentence) if is_wrong_path(error) else not_written(error, sentence)


def not_written(error: OSError, sentence: str) -> MachineError:
    """`sentence` as the error for a file that could not be written."""
    return FullDisk(sentence) if is_full(error) else MachineError(sentence)


def report_end(code: int, sentence: str) -> None:
    """Report why this process ends with `code`: to the user, and to every listener.

    Secrets and control characters, such as those in a file name, are removed.
    """
    sentence = harmless(without_secrets(sentence))
    # One write, as print makes two if Python is unbuffered, and torchrun and mpirun mix other ranks' output in between.
    with suppress(OSError):  # standard error may be a file on a full disk
        sys.stderr.write((sentence if code == Exit.INTERRUPTED else f"error: {sentence}") + "\n")
        sys.stderr.flush()
    for listener in _listeners:
        listener(code, sentence)


@contextmanager
def ends_reported_to(listener: Callable[[int, str], None]) -> Iterator[None]:
    """Call `listener` with each exit code and sentence passed to report_end() inside the block."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def exit_code_of(command: Callable[[], object], if_stopped: str = "") -> int:
    """Run a command; return its exit code, after reporting an error, or `if_stopped` after Ctrl-C."""
    try:
        command()
    except TrainerError as error:
        with suppress(OSError):  # its reader may have ended
            sys.stdout.flush()
        report_end(error.code, str(error))
        return error.code
    except KeyboardInterrupt:
        if if_stopped:
            report_end(Exit.INTERRUPTED, if_stopped)
        return STOPPED
    return Exit.DONE


Entry = TypeVar("Entry")


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A clause that suggests the closest of `known`, or an empty string if none is close."""
    close = get_close_matches(given.lower(), sorted(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def check_name(kind: str, name: str, known: Iterable[str]) -> None:
    """Raise SettingsError with the nearest name unless `name` is one of `known`."""
    names = list(known)
    if name not in names:
        shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        given = one_line(name)
        raise SettingsError(f"unknown {kind} {given!r}{did_you_mean(given, names) or '.'} Known: {shown}.")


def look_up(kind: str, name: str, table: Mapping[str, Entry]) -> Entry:
    """The entry of `table` for `name`.  Raises SettingsError with the nearest name."""
    check_name(kind, name, table)
    return table[name]


def import_function(reference: str) -> Callable[..., Any]:
    """The function named by `reference`, "module:function", whose module is imported now."""
    module, _, name = reference.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def one_of(names: Iterable[str]) -> str:
    """A list of names for a help text: 'digits, cifar10 or synthetic'."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
