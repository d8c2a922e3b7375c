"""What a command prints: messages, questions, and tables of plain text.  The only way of launch to a terminal."""

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
    """`text`, which may be a stranger's, without what would begin a further row, or move out of its column."""
    return harmless(_BREAKS.sub(" ", text))


def columns(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Labels and texts, the texts in one column."""
    width = max((len(label) for label, _ in rows), default=0)
    return [f"  {label:<{width}}  {text}".rstrip() for label, text in rows]


def narrowed(
    columns: Sequence[str], rows: Sequence[Sequence[str]], optional: Sequence[str], width: int | None
) -> tuple[list[str], list[list[str]]]:
    """The columns and rows that fit into `width` characters, left without `optional` columns, the first of them first.

    width None: all of them.
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
