"""C12: a name in table.csv and runs.csv is no formula to a spreadsheet."""

import csv
import io
import time

import pytest

from launch.sweep import table
from trainer.terminal import FORMULAS, harmless_row


@pytest.mark.parametrize(
    "text",
    [
        '=HYPERLINK("http://x")',
        "+1+cmd|' /C calc'!A0",
        "-2+3",
        "@SUM(1)",
        "\t=1",
        "\r=1",
        "\n=1",
        "\uff1d1+1",
        "\uff20SUM(1)",
    ],
)
def test_what_a_spreadsheet_would_run_is_quoted(text: str) -> None:
    # What begins with a separator of cells, or of lines, begins the second, too.
    quoted = f"'{text[0]}'{text[1:]}" if text[0] in "\t\r\n" else f"'{text}"
    assert harmless_row({text: text}) == {quoted: quoted}


@pytest.mark.parametrize("begun", ["=1+1", '"=1+1', " =1+1", "@SUM(1)", "-2+3", "\uff1d1+1"])
@pytest.mark.parametrize("separator", [";", "\t", "\n", "\r", "\r\n", "\n;"])
def test_a_spreadsheet_that_separates_cells_otherwise_finds_no_formula(separator: str, begun: str) -> None:
    """OWASP's page, of field separators: where lists are separated by semicolons, a text with one is two cells.

    And one with a line end two lines, as the quote before it does not begin a cell.
    """
    text = io.StringIO()
    csv.writer(text).writerow(harmless_row({"run": "a", "name": f"x{separator}{begun}"}).values())
    parts = csv.reader(io.StringIO(text.getvalue(), newline=""), delimiter=separator[-1:].strip("\r\n") or ";")
    for read in (parts, csv.reader(io.StringIO(text.getvalue(), newline=""))):
        cells = [cell.lstrip(' "') for row in read for cell in row]
        assert not [cell for cell in cells if cell.startswith(FORMULAS)]


@pytest.mark.parametrize("value", [["x;=1+1"], {"x": ["y", "z;@SUM(1)"]}, {"x;=1+1": 2}, ("x;-2+3",)])
def test_nor_one_in_a_list_of_a_strangers_json(value: object) -> None:
    text = io.StringIO()
    csv.writer(text).writerow(harmless_row({"x": value}).values())
    (row,) = csv.reader([text.getvalue()], delimiter=";")
    assert [cell for cell in row if cell.lstrip(' "').startswith(FORMULAS)] == []
    assert harmless_row({"x": [1, "a"]}) == {"x": "[1, 'a']"}  # as it was


def test_a_stranger_does_not_hold_up_a_table() -> None:
    before = time.process_time()
    harmless_row({"x": "x" + "\t" * 20_000})
    assert time.process_time() - before < 1  # it took more than three


@pytest.mark.parametrize("value", ["a; b=1", "-1.5", "+2", "1e-3", "resnet18", "", -3, 2.5, None, True, "a=b"])
def test_numbers_and_words_are_left_as_they_are(value: object) -> None:
    assert harmless_row({"x": value}) == {"x": value}


def test_nothing_in_runs_csv_begins_like_a_formula() -> None:
    assert table.harmless_row is harmless_row  # both tables write through it
    text = io.StringIO()
    csv.DictWriter(text, ["x"]).writerow(harmless_row({"x": "=1+1"}))
    assert text.getvalue().strip() == "'=1+1"
