"""Messages to the user of a command, and questions to them: the only way of launch's to a terminal."""

import sys
from contextlib import suppress
from typing import TextIO

from trainer.errors import SettingsError
from trainer.settings.hidden import without_secrets
from trainer.terminal import harmless

__all__ = ["OutputLost", "complain", "confirm", "harmless", "may_detach", "say"]


class OutputLost(BrokenPipeError):
    """Standard output takes no more, as a disk is full: what a closed terminal ends, this ends too."""


def say(text: str = "") -> None:
    """Prints a line, of which nothing is obeyed: a job's name, a reason or a path in it may be a stranger's."""
    try:
        _print(text, sys.stdout)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputLost(error.errno, error.strerror) from error


def complain(text: str) -> None:
    """Prints a line on standard error, after all that was said; a secret in it is not repeated."""
    with suppress(OSError, ValueError, AttributeError):  # a full disk, a closed pipe, no output at all
        sys.stdout.flush()
    with suppress(OSError):
        _print(without_secrets(text), sys.stderr)


def _print(text: str, stream: TextIO) -> None:
    encoding = getattr(stream, "encoding", None) or "utf-8"  # in which a stranger's letters may have no place
    print(harmless(text).encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)


def _may_ask() -> bool:
    """Whether somebody can be asked, and can answer.

    Python lacks the streams that were closed where a command was started, and asks nothing without all three of them.
    """
    return None not in (sys.stdin, sys.stdout, sys.stderr) and sys.stdin.isatty()


def confirm(what: str) -> None:
    """Asks the user to confirm `what`.  Raises SettingsError if they do not, or if there is no terminal to ask on."""
    if not _may_ask():
        raise SettingsError(f"{what}; add --yes to confirm.")
    try:
        answer = input(f"\n{harmless(what)}.  Continue? [yes/no] ").strip().lower()
    except EOFError:
        answer = "no"
    if answer not in ("y", "yes"):
        raise SettingsError("not confirmed; nothing was changed.  Answer yes, or add --yes.")


def may_detach() -> bool:
    """Whether a user who pressed Ctrl-C wants the job to keep running; no without a terminal, or at another Ctrl-C.

    No, too, where the answer is no text, as of a key that the terminal sends in another encoding.
    """
    if not _may_ask():
        return False
    try:
        return input("\nStop the job, or detach and leave it running? [stop/detach] ").strip().lower().startswith("d")
    except (KeyboardInterrupt, EOFError, UnicodeError):
        return False
