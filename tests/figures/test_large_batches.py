"""The figure of large batches shows the table's numbers."""

from tests.figures.large_batches import BENCH, chart


def test_every_row_of_the_table_is_a_bar() -> None:
    rows = chart((BENCH / "RESULTS.md").read_text(encoding="utf-8")).rows

    assert len(rows) == 14
    assert ("8192; Muon, 0.05", (59.6,), "59.6 %, 30 updates") in [(row.label, row.parts, row.text) for row in rows]
    assert max(row.parts[0] for row in rows) == 88.2
