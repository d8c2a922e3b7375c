"""Messages, questions and tables of plain text.  The only module of launch that prints."""

import re
import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from io import StringIO
from typing import TextIO

from trainer.errors import SettingsError
from trainer.settings.hidden import without_secrets
from trainer.terminal import harmless

__all__ = ["OutputLost", "complain", "confirm", "harmless", "may_detach", "say"]

Say = Callable[[str], None]


class OutputLost(BrokenPipeError):
    """Writing to standard output failed, as on a full disk; handled like a closed terminal."""


def say(text: str = "") -> None:
    """Print a line, with control characters escaped: names, reasons and paths in it are untrusted."""
    try:
        _print(text, sys.stdout)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputLost(error.errno, error.strerror) from error


def complain(text: str) -> None:
    """Print a line on standard error, after pending output and without secrets."""
    with suppress(OSError, ValueError, AttributeError):  # a full disk, a closed pipe, no output at all
        sys.stdout.flush()
    with suppress(OSError):
        _print(without_secrets(text), sys.stderr)


# How a command is written in sentences -> how the console script is called.  A path to a Python is no such command.
_COMMANDS = (
    (re.compile(r"(?<![\w/.-])python -m launch\.(\w+)"), r"ddp \1"),
    (re.compile(r"(?<![\w/.-])python -m launch(?![.\w])"), "ddp"),
)
_TRAINER = (
    (re.compile(r"^usage: python -m trainer\.(\w+)"), r"usage: ddp \1"),
    (re.compile(r"^usage: python -m trainer(?![.\w])"), "usage: ddp train"),
)
_shown: list[tuple[re.Pattern[str], str]] = []


def use_short_commands() -> None:
    """Print `ddp NAME` for `python -m launch.NAME` from now on: where ddp was installed alone, `python` is another."""
    from trainer.settings import argparser

    _shown[:] = _COMMANDS
    argparser.ALIASES[:] = (*_COMMANDS, *_TRAINER)


def _print(text: str, stream: TextIO) -> None:
    for written, shown in () if text.startswith(("{", "[")) else _shown:  # JSON is for programs
        text = written.sub(shown, text)
    encoding = getattr(stream, "encoding", None) or "utf-8"  # which may lack some of the characters
    print(harmless(text).encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)


def _may_ask() -> bool:
    """Whether the user can be asked.

    A standard stream is None if it was closed at the start, and input() needs all three.
    """
    return None not in (sys.stdin, sys.stdout, sys.stderr) and sys.stdin.isatty()


def confirm(what: str) -> None:
    """Ask the user to confirm `what`.  Raises SettingsError if they do not, or if there is no terminal."""
    if not _may_ask():
        raise SettingsError(f"{what}; add --yes to confirm.")
    try:
        answer = input(f"\n{harmless(what)}.  Continue? [yes/no] ").strip().lower()
    except EOFError:
        answer = "no"
    if answer not in ("y", "yes"):
        raise SettingsError("not confirmed; nothing was changed.  Answer yes, or add --yes.")


def approve(what: str) -> None:
    """Ask the user whether to do `what`, which costs money.  Raises SettingsError if they do not agree."""
    if not _may_ask():
        raise SettingsError(f"to {what}, add --yes, or --max-usd with the most that it may cost: there is no terminal "
                            "to ask at.")  # fmt: skip
    if not wants(what):
        raise SettingsError("nothing was started.  Answer y, or add --yes.")


def wants(what: str) -> bool:
    """Ask whether to do `what`.  False without a terminal, at Ctrl-C, or if the answer cannot be decoded."""
    if not _may_ask():
        return False
    try:
        return input(f"{harmless(what)}? [y/N] ").strip().lower() in ("y", "yes")
    except (KeyboardInterrupt, EOFError, UnicodeError):
        return False


def may_detach() -> bool:
    """Ask after a Ctrl-C whether the job shall keep running.

    False without a terminal, at another Ctrl-C, or if the answer cannot be decoded.
    """
    if not _may_ask():
        return False
    try:
        return input("\nStop the job, or detach and leave it running? [stop/detach] ").strip().lower().startswith("d")
    except (KeyboardInterrupt, EOFError, UnicodeError):
        return False


WIDEST = 100_000  # columns: lines are never wrapped, so that they can be piped to other programs
INDENT, GAP = "  ", 2
_BREAKS = re.compile(r"[\t\n]+")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()) -> str:
    """Rows under their headings, in aligned columns; no boxes, no colours, no trailing spaces.

    right: the columns of numbers, which are aligned to the right.
    """
    # Imported here, as it takes longer than everything else that `--help` needs.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="")
    for column in columns:
        grid.add_column(Text(column), justify="right" if column in right else "left")  # Text: brackets are not markup
    for row in rows:
        grid.add_row(*(Text(one_row(cell)) for cell in row))
    output = StringIO()
    Console(file=output, width=WIDEST, color_system=None, force_terminal=False).print(grid, crop=False)
    return "\n".join((INDENT + line).rstrip() for line in output.getvalue().splitlines())


def one_row(text: str) -> str:
    """Replace what would break untrusted `text` out of its row or column."""
    return harmless(_BREAKS.sub(" ", text))


def columns(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Lines of labels and texts, with the texts aligned."""
    width = max((len(label) for label, _ in rows), default=0)
    return [f"  {label:<{width}}  {text}".rstrip() for label, text in rows]


def narrowed(
    columns: Sequence[str], rows: Sequence[Sequence[str]], optional: Sequence[str], width: int | None
) -> tuple[list[str], list[list[str]]]:
    """Drop `optional` columns, in their order, until the table fits into `width` characters.

    width None: keep all.
    """
    kept = list(range(len(columns)))
    widths = [max(len(row[place]) for row in (columns, *rows)) + GAP for place in kept]
    to_drop = list(dict.fromkeys(columns.index(name) for name in optional if name in columns))
    while width is not None and to_drop and _total(widths, kept) > width:
        kept.remove(to_drop.pop(0))
    return _only(kept, columns, rows)


def _total(widths: Sequence[int], kept: Sequence[int]) -> int:
    return len(INDENT) + sum(widths[place] for place in kept) - GAP


def _only(
    kept: Sequence[int], columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    return [columns[place] for place in kept], [[row[place] for place in kept] for row in rows]


def without_empty(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """The columns that have a value in some row."""
    kept = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    return _only(kept, columns, rows)


def terminal_width() -> int | None:
    """Characters in a line of the terminal; None where the output is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
