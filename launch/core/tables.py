"""Tables of text.  Pure."""

from collections.abc import Sequence


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under their headings, in columns as wide as they must be."""
    everything = [tuple(columns), *(tuple(row) for row in rows)]
    widths = [max(len(row[place]) for row in everything) for place in range(len(columns))]
    lines = ("  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)) for row in everything)
    return "\n".join("  " + line.rstrip() for line in lines)
