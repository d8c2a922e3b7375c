"""Tables of plain text, laid out by rich.  Pure."""

from collections.abc import Sequence
from io import StringIO

WIDEST = 100_000  # columns: lines are never wrapped, so that they can be piped to other programs


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under their headings, in aligned columns; no boxes, no colours, no trailing spaces."""
    # Imported here, as it takes longer than everything else that `--help` needs.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="")
    for column in columns:
        grid.add_column(Text(column))  # Text: brackets are not markup
    for row in rows:
        grid.add_row(*map(Text, row))
    output = StringIO()
    Console(file=output, width=WIDEST, color_system=None, force_terminal=False).print(grid, crop=False)
    return "\n".join("  " + line.rstrip() for line in output.getvalue().splitlines())
