"""Cells of CSV files.  Pure, torch-free."""

import re

# What a spreadsheet takes for a formula, which may call programs:
# https://owasp.org/www-community/attacks/CSV_Injection, with the wide forms of the same signs
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# Where one would begin within a text: spreadsheets of other languages separate cells by semicolons, some by tabs.  To
# them the quote before a text with a line end begins no cell, and the line ends there.  It is read from the end, as a
# search from each of a thousand tabs on would go over all of them.
_WITHIN = re.compile('[=+@\uff1d\uff0b\uff0d\uff20-](?=["\\s]*[;\t\r\n])')


def harmless(row: dict[str, object]) -> dict[str, object]:
    """`row` with a quote before, or in, each text that a spreadsheet would run; numbers are left as they are.

    A list in a stranger's JSON is a text with a formula in it as well, once it is written.
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
