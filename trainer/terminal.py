"""Standard streams, and sanitizing of untrusted text for terminals and spreadsheets.  Torch-free."""

import os
import re
import sys
from pathlib import Path
from types import TracebackType

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# Control characters other than tabs and line ends, marks that change the direction of writing (Unicode's property
# Bidi_Control), Unicode line ends, zero-width characters (other than the joiners that Persian, Hindi and emoji need),
# and bytes of file names that are not UTF-8, which cannot be printed.
_HOSTILE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
    "\u00ad\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
# Beginnings that a spreadsheet interprets as a formula, which may run programs:
# https://owasp.org/www-community/attacks/CSV_Injection, with the full-width forms of the same signs
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# A formula within a text: spreadsheets of some locales separate cells by semicolons or tabs, and then do not treat the
# text as quoted, so that line ends in it start new rows.  Matched on the reversed text: forward, a search from each of
# a thousand tabs would scan all of them.
_WITHIN = re.compile('[=+@\uff1d\uff0b\uff0d\uff20-](?=["\\s]*[;\t\r\n])')


class _Shown(dict[int, str]):
    """Cache of the replacement of each code point for str.translate: a text may have 64 MB of them to replace."""

    def __missing__(self, number: int) -> str:
        letter = chr(number)
        self[number] = ascii(letter)[1:-1] if _HOSTILE.match(letter) else letter
        return self[number]


_SHOWN = _Shown()


def harmless(text: str) -> str:
    """Untrusted `text`, such as a training's log or a tag, without terminal control sequences.

    Colours are removed; other control characters are escaped.
    """
    return _COLOURS.sub("", text).translate(_SHOWN)


def say(line: str) -> None:
    """Print a line in one write, as mpirun and torchrun mix the output of ranks between writes, and flush.

    If that fails, print one warning and discard further output: the run folder has every number.
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
    """Discard buffered and all later output."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


def begin() -> None:
    """Open missing standard streams, and let Ctrl-C end this process without a traceback."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Closed by the parent, as with `>&-`: otherwise the next file opened would get its descriptor, and child
            # processes would print into that file.
            stream = Path(os.devnull).open(mode)  # noqa: SIM115  # stays open until the process ends
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
    sys.excepthook = _without_traceback


def _without_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    # Ctrl-C while modules are imported, where nothing else catches it; Python then kills itself with SIGINT.
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


def harmless_row(row: dict[str, object]) -> dict[str, object]:
    """A CSV row in which texts that a spreadsheet would run as formulas are quoted; numbers are left unchanged.

    Other values, such as lists, are converted to text.
    """
    return {cell(name): value if _is_plain(value) else cell(str(value)) for name, value in row.items()}


def cell(text: str) -> str:
    """`text` with a quote wherever a spreadsheet would start a formula."""
    text = encodable(text)
    text = _WITHIN.sub(lambda begun: f"{begun[0]}'", text[::-1])[::-1]
    return f"'{text}" if text.startswith(FORMULAS) and not _is_number(text) else text


def encodable(text: str) -> str:
    """`text` with lone surrogates, which file names and JSON may contain, escaped so that it can be encoded."""
    return text.encode(errors="backslashreplace").decode()


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (int, float))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
