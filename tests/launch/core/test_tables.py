"""launch.core.tables: aligned plain text."""

import subprocess
import sys

import pytest

from launch.core.tables import table

ROWS = [("longer", "b"), ("c", "")]
EXPECTED = "  a       long heading\n  longer  b\n  c"


def test_columns_are_aligned_without_trailing_spaces() -> None:
    assert table(("a", "long heading"), ROWS) == EXPECTED
    assert table(("a",), []) == "  a"


def test_wide_characters_take_two_columns() -> None:
    assert table(("name", "n"), [("日本", "1"), ("abcdef", "2")]) == "  name    n\n  日本    1\n  abcdef  2"


@pytest.mark.parametrize("env", [{"COLUMNS": "8"}, {"FORCE_COLOR": "1"}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_the_environment_does_not_change_the_text(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    assert table(("a", "long heading"), ROWS) == EXPECTED


def test_brackets_are_not_markup() -> None:
    assert table(("[b]",), [("[red]x[/red]",)]) == "  [b]\n  [red]x[/red]"


def test_help_does_not_load_the_library() -> None:
    code = "import sys, launch.core.tables; sys.exit('rich' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
