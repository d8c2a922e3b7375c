"""Tables, and that no text from elsewhere rewrites the terminal of who looks at it."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from launch.core import terminal
from launch.core.plan import Plan
from launch.core.terminal import complain, confirm, harmless, narrowed, say, table, without_empty
from launch.core.verbs import coded
from tests.conftest import ROOT
from trainer.contract import Exit
from trainer.errors import SettingsError, report_end
from trainer.terminal import say as trainers_say

HOSTILE = ["\x1b[2J", "\x1b]0;title\x07", "\x1b]52;c;aGk=\x07", "\x9b2J", "\x08\x08", "a\rb", "\x00", "\u202e",
           "\u2066", "\u061c", "\u2028", "\udcff"]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_escapes_are_shown_and_not_obeyed(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a line, a question, an error, an end of the trainer's and a plan."""
    asked = list[str]()
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(terminal, "input", lambda prompt: asked.append(prompt) or "yes", raising=False)
    error = SettingsError(f"a{text}b ghp_pl4nt3d0pl4nt3d0pl4nt3d0pl4nt3d0pl4nt3d0")

    def fail() -> int:
        raise error

    say(f"a{text}b")
    trainers_say(f"a{text}b")
    confirm(f"a{text}b")
    report_end(3, f"a{text}b")
    assert coded(fail) == 2

    plan = Plan(title=f"a{text}b", payload=None, warnings=(text,))
    printed = capsys.readouterr()
    for shown in (printed.out, printed.err, *asked, plan.brief, str(plan), *error._render_traceback_()):
        assert all(line.isprintable() for line in shown.split("\n"))
        assert "pl4nt3d" not in shown
    assert harmless(f"a{text}b").encode()


FAMILY = "\U0001f468\u200d\U0001f469 \u0645\u06cc\u200c\u062e"


def test_plain_text_stays_as_it_is() -> None:
    for text in ["epoch 1/2\tloss 0.5", "m\u00fcll", "\u6f22\u5b57", "[1] 100%|\u2588| x", "", FAMILY]:
        assert harmless(text) == text


def test_colours_go_without_a_trace() -> None:
    assert harmless("\x1b[1;31mred\x1b[0m") == "red"


def test_what_has_no_width_is_shown() -> None:
    for text in ["\u200b", "\u00ad", "\u2060", "\ufeff", "\U000e0041"]:
        assert harmless(f"job{text}1") == f"job{ascii(text)[1:-1]}1"


def test_a_file_that_a_star_has_found_is_no_escape_in_an_error() -> None:
    """`trainer.predict RUN *` in a folder with a file whose name begins like a flag."""
    words = (sys.executable, "-m", "trainer.predict", "run", "x.jpg", "--to=onnx", "-\x1b]0;title\x07\nerror: x")
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)

    assert ended.returncode == 2
    assert all(line.isprintable() for line in ended.stderr.splitlines())
    assert "\nerror: x" not in ended.stderr


def test_letters_that_a_terminal_lacks_end_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training prints what it likes, and who follows its log may have a terminal of the last century."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="latin-1") for _ in range(2))
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)

    say("m\u00fcll \u6f22")
    complain("\u2713")

    assert out.buffer.getvalue() == b"m\xfcll \\u6f22\n"
    assert err.buffer.getvalue() == b"\\u2713\n"


@pytest.mark.parametrize("words", [("launch", "--help"), ("launch.local", "--dry-run")])
def test_a_full_disk_behind_standard_output_is_one_sentence(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", *words], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode == Exit.DISK
    assert ended.stderr.startswith("error: standard output cannot be written (No space left on device)")


# ---- tables

ROWS = [("longer", "b"), ("c", "")]
EXPECTED = "  a       long heading\n  longer  b\n  c"


def test_columns_are_aligned_without_trailing_spaces() -> None:
    assert table(("a", "long heading"), ROWS) == EXPECTED
    assert table(("[b]",), [("[red]x[/red]",)]) == "  [b]\n  [red]x[/red]"  # no markup
    assert table(("name", "n"), [("日本", "1"), ("abcdef", "2")]) == "  name    n\n  日本    1\n  abcdef  2"  # two wide


def test_the_environment_does_not_change_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    for env in [{"COLUMNS": "8"}, {"FORCE_COLOR": "1"}, {"NO_COLOR": "1"}, {"TERM": "dumb"}]:
        for name, value in env.items():
            monkeypatch.setenv(name, value)

        assert table(("a", "long heading"), ROWS) == EXPECTED


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


def test_no_cell_begins_a_row_or_leaves_its_column() -> None:
    for cell in ["a\n  theirs  done", "a\r\nwarning: run this", "a\tb", "\n\n", "a\u2028b"]:
        first, second = table(("job", "state"), [(cell, "failed")]).splitlines()
        assert first.startswith("  job")
        assert second.endswith("  failed")
        assert "\t" not in second
