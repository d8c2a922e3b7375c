"""launch.core.terminal: aligned plain text."""

import subprocess
import sys

import pytest

from launch.core.terminal import narrowed, table, without_empty

ROWS = [("longer", "b"), ("c", "")]
EXPECTED = "  a       long heading\n  longer  b\n  c"


def test_columns_are_aligned_without_trailing_spaces() -> None:
    assert table(("a", "long heading"), ROWS) == EXPECTED
    assert table(("a",), []) == "  a"


def test_wide_characters_take_two_columns() -> None:
    assert table(("name", "n"), [("日本", "1"), ("abcdef", "2")]) == "  name    n\n  日本    1\n  abcdef  2"


@pytest.mark.parametrize("env", [{"COLUMNS": "8"}, {"FORCE_COLOR": "1"}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_the_environment_does_not_change_the_text(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    assert table(("a", "long heading"), ROWS) == EXPECTED


def test_brackets_are_not_markup() -> None:
    assert table(("[b]",), [("[red]x[/red]",)]) == "  [b]\n  [red]x[/red]"


def test_help_does_not_load_the_library() -> None:
    code = "import sys, launch.core.terminal; sys.exit('rich' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_numbers_end_at_the_right_of_their_column() -> None:
    assert table(("run", "USD"), [("a", "1.50"), ("b", "10.00")], right={"USD"}) == (
        "  run    USD\n  a     1.50\n  b    10.00"
    )


@pytest.mark.parametrize(
    ("width", "left"),
    [(None, ["run", "range", "USD"]), (20, ["run", "range", "USD"]), (19, ["run", "USD"]), (5, ["run"])],
)
def test_what_is_optional_is_dropped_in_its_order_until_the_table_fits(width: int | None, left: list[str]) -> None:
    columns, rows = narrowed(("run", "range", "USD"), [("longer", "1 - 2", "3")], ("range", "USD"), width)

    assert columns == left
    assert [len(row) for row in rows] == [len(left)]


def test_columns_without_a_value_are_left_out() -> None:
    assert without_empty(("a", "b"), [("", "1"), ("", "")]) == (["b"], [["1"], [""]])


def test_a_column_that_may_go_by_two_names_goes_once() -> None:
    """A setting of a run, which names a column, may be called as one of ours."""
    assert narrowed(["a", "b"], [["1", "2"]], ("b", "b"), 1) == (["a"], [["1"]])


@pytest.mark.parametrize("cell", ["a\n  theirs  done", "a\r\nwarning: run this", "a\tb", "\n\n", "a\u2028b"])
def test_no_cell_of_a_strangers_begins_a_row_or_leaves_its_column(cell: str) -> None:
    """A run's folder, a tag and a reason may hold line ends, behind which a row of somebody's own would stand."""
    first, second = table(("job", "state"), [(cell, "failed")]).splitlines()
    assert first.startswith("  job")
    assert second.endswith("  failed")
    assert "\t" not in second
