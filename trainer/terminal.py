"""Output: the standard streams, and text from elsewhere made safe to show on a terminal or in a table.  Torch-free."""

import os
import re
import sys
from pathlib import Path
from types import TracebackType

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# Control characters but tabs and line ends, the marks that turn the direction of writing around (Unicode's property
# Bidi_Control), its line ends, what is there and has no width (but the joiners that Persian, Hindi and emoji need), and
# the bytes of a file's name that are no text, at which printing would fail.
_HOSTILE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
    "\u00ad\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
# What a spreadsheet takes for a formula, which may call programs:
# https://owasp.org/www-community/attacks/CSV_Injection, with the wide forms of the same signs
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# Where one would begin within a text: spreadsheets of other languages separate cells by semicolons, some by tabs.  To
# them the quote before a text with a line end begins no cell, and the line ends there.  It is read from the end, as a
# search from each of a thousand tabs on would go over all of them.
_WITHIN = re.compile('[=+@\uff1d\uff0b\uff0d\uff20-](?=["\\s]*[;\t\r\n])')


class _Shown(dict[int, str]):
    """How each letter is shown, by its number, as they come: a text may be 64 MB of what is not shown as it is."""

    def __missing__(self, number: int) -> str:
        letter = chr(number)
        self[number] = ascii(letter)[1:-1] if _HOSTILE.match(letter) else letter
        return self[number]


_SHOWN = _Shown()


def harmless(text: str) -> str:
    """`text` from elsewhere, such as a training's log or a tag, without what would move or rewrite the terminal.

    Colours go; whatever else is no plain text is shown by its number.
    """
    return _COLOURS.sub("", text).translate(_SHOWN)


def say(line: str) -> None:
    """Writes a line, at once and in one piece: mpirun and torchrun mix the output of ranks between writes.

    Where that fails, a warning says so once, and the training goes on: the run folder has every number.
    """
    encoding = sys.stdout.encoding or "utf-8"
    printable = harmless(line).encode(encoding, "backslashreplace").decode(encoding)  # a path may hold any bytes
    try:
        sys.stdout.write(printable + "\n")
        sys.stdout.flush()
    except OSError as error:
        _discard()
        sys.stderr.write(f"warning: standard output is lost ({error.strerror}); the training goes on without it.\n")
        sys.stderr.flush()


def _discard() -> None:
    """Discards what is in the buffer, and all later output."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def begin() -> None:
    """Gives this process the standard streams that it lacks, and lets Ctrl-C end it without a traceback."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Closed by who started this, as with `>&-`: the next file that is opened would have its number, and what
            # the processes that this one starts print would go into that file.
            stream = Path(os.devnull).open(mode)  # noqa: SIM115  # as long as the process
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
    sys.excepthook = _without_traceback


def _without_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    # While modules are loaded, where nothing else catches it; Python then ends by the signal itself.
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


def harmless_row(row: dict[str, object]) -> dict[str, object]:
    """`row` with a quote before, or in, each text that a spreadsheet would run; numbers are left as they are.

    A list is written as a text, which may be a formula as well.
    """
    return {cell(name): value if _is_plain(value) else cell(str(value)) for name, value in row.items()}


def cell(text: str) -> str:
    """`text` with a quote where a spreadsheet would run it."""
    text = encodable(text)
    text = _WITHIN.sub(lambda begun: f"{begun[0]}'", text[::-1])[::-1]
    return f"'{text}" if text.startswith(FORMULAS) and not _is_number(text) else text


def encodable(text: str) -> str:
    """`text` as a file can hold it: names of files, and JSON, may have halves of characters, shown by their number."""
    return text.encode(errors="backslashreplace").decode()


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (int, float))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
