"""Messages to the user of a command, and questions to them."""

import re
import sys

from trainer.errors import SettingsError

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# Control characters but tabs and line ends, the marks that turn the direction of writing around (Unicode's property
# Bidi_Control), its line ends, and the bytes of a file's name that are no text, at which printing would fail.
_HOSTILE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text: str) -> str:
    """`text` of strangers, such as a training's log or a tag, without what would move or rewrite the terminal.

    Colours go; whatever else is no plain text is shown by its number.
    """
    return _HOSTILE.sub(lambda mark: ascii(mark[0])[1:-1], _COLOURS.sub("", text))


def say(text: str = "") -> None:
    """Prints a line, of which nothing is obeyed: a job's name, a reason or a path in it may be a stranger's."""
    print(harmless(text), flush=True)  # a pipe would buffer it otherwise


def confirm(what: str) -> None:
    """Asks the user to confirm `what`.  Raises SettingsError if they do not, or if there is no terminal to ask on."""
    if not sys.stdin.isatty():
        raise SettingsError(f"{what}; add --yes to confirm.")
    try:
        answer = input(f"\n{harmless(what)}.  Continue? [yes/no] ").strip().lower()
    except EOFError:
        answer = "no"
    if answer not in ("y", "yes"):
        raise SettingsError("not confirmed; nothing was changed.  Answer yes, or add --yes.")


def may_detach() -> bool:
    """Whether a user who pressed Ctrl-C wants the job to keep running; no without a terminal, or at another Ctrl-C."""
    if not sys.stdin.isatty():
        return False
    try:
        return input("\nStop the job, or detach and leave it running? [stop/detach] ").strip().lower().startswith("d")
    except (KeyboardInterrupt, EOFError):
        return False
