"""C12: what a training logs, or somebody writes into a tag, does not rewrite the terminal of who looks at it."""

import io
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from launch.core import terminal
from launch.core.plan import Plan
from launch.core.terminal import complain, confirm, harmless, say, table
from launch.core.verbs import coded
from launch.sagemaker.runtime import notebook
from tests.conftest import ROOT
from trainer import kit
from trainer.contract import Exit
from trainer.errors import DataError, SettingsError, report_end
from trainer.metrics.log import _to_stderr
from trainer.terminal import say as trainers_say

HOSTILE = [
    "\x1b[2J",
    "\x1b]0;title\x07",
    "\x1b]52;c;aGk=\x07",
    "\x9b2J",
    "\x08\x08",
    "a\rb",
    "\x00",
    "\u202e",
    "\u2066",
    "\u061c",
    "\u2028",
    "\udcff",
]


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_escapes_are_shown_and_not_obeyed(text: str) -> None:
    shown = harmless(f"a{text}b")
    assert shown.isprintable()
    assert shown.startswith("a")
    assert shown.endswith("b")
    assert shown.encode()
    cell = table(["job"], [[f"a{text}b"]]).splitlines()[-1]
    assert cell.isprintable()


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_neither_is_one_in_a_line_nor_in_a_question(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = list[str]()

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return "yes"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(terminal, "input", answer, raising=False)

    say(f"a{text}b")
    confirm(f"a{text}b")

    assert capsys.readouterr().out.removesuffix("\n").isprintable()
    assert "".join(asked).removeprefix("\n").isprintable()


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_nor_in_an_error(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise SettingsError(f"a{text}b postgres://user:pl4nt3d0pl4nt3d0@db.example.com/x")

    assert coded(fail) == 2

    said = capsys.readouterr().err.removesuffix("\n")
    assert said.isprintable()
    assert "pl4nt3d" not in said


@pytest.mark.parametrize("text", ["epoch 1/2\tloss 0.5", "m\u00fcll", "\u6f22\u5b57", "[1] 100%|\u2588| x", ""])
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert harmless(text) == text


def test_what_is_shown_of_a_log_takes_little_more_memory_than_its_text() -> None:
    """A colleague's log may be 64 MB of what is not shown as it is, of which each letter took 75 bytes."""
    text = "\0" * 2**18
    tracemalloc.start()
    try:
        shown = harmless(text)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert shown == r"\x00" * 2**18
    assert most < 4 * len(shown)


def test_colours_go_without_a_trace() -> None:
    assert harmless("\x1b[1;31mred\x1b[0m") == "red"


@pytest.mark.parametrize("text", ["\u200b", "\u00ad", "\u2060", "\ufeff", "\U000e0041"])
def test_what_has_no_width_is_shown(text: str) -> None:
    assert harmless(f"job{text}1") == f"job{ascii(text)[1:-1]}1"


def test_joiners_of_scripts_and_emoji_stay() -> None:
    family = "\U0001f468\u200d\U0001f469"
    assert harmless(f"{family} \u0645\u06cc\u200c\u062e") == f"{family} \u0645\u06cc\u200c\u062e"


@pytest.mark.parametrize("command", ["trainer.predict", "trainer.export", "trainer.count"])
def test_a_file_that_a_star_has_found_is_no_escape_in_an_error(command: str) -> None:
    """`trainer.predict RUN *` in a folder with a file whose name begins like a flag."""
    words = (sys.executable, "-m", command, "run", "x.jpg", "--to=onnx", "-\x1b]0;title\x07\nerror: x")
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)

    assert ended.returncode == 2
    assert all(line.isprintable() for line in ended.stderr.splitlines())
    assert "\nerror: x" not in ended.stderr


def test_nor_is_a_checkpoints_name_in_the_kits_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kit, "run_folder", lambda: tmp_path)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step-\x1b[2J.pt").touch()

    kit._newest()
    _to_stderr("tracker \x1b[2J")

    assert capsys.readouterr().err.count("\x1b") == 0


@pytest.mark.parametrize("name", ["plain", "\x1b[2J", "\u202e", "x\ny"])
def test_a_notebook_shows_a_strangers_words_as_a_command_does(name: str) -> None:
    plan = Plan(title=name, payload=None, warnings=(name,))
    error = DataError(f"{name} ghp_pl4nt3d0pl4nt3d0pl4nt3d0pl4nt3d0pl4nt3d0")

    for shown in (plan.brief, str(plan), *error._render_traceback_()):
        assert all(line.isprintable() for line in shown.split("\n"))
        assert "pl4nt3d" not in shown
    assert notebook(None).say is say


def test_an_end_of_the_trainers_shows_escapes_too(capsys: pytest.CaptureFixture[str]) -> None:
    report_end(3, "cannot read \x1b[2Jphoto\u202egpj.exe")
    trainers_say("class \x1b]0;t\x07")
    shown = capsys.readouterr()
    assert (shown.err, shown.out) == ("error: cannot read \\x1b[2Jphoto\\u202egpj.exe\n", "class \\x1b]0;t\\x07\n")


def test_letters_that_a_terminal_lacks_end_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training prints what it likes, and who follows its log may have a terminal of the last century."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="latin-1") for _ in range(2))
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)

    say("m\u00fcll \u6f22")
    complain("\u2713")

    assert out.buffer.getvalue() == b"m\xfcll \\u6f22\n"
    assert err.buffer.getvalue() == b"\\u2713\n"


@pytest.mark.parametrize("words", [("launch", "--help"), ("launch.forecast",), ("launch.local", "--dry-run")])
def test_a_full_disk_behind_standard_output_is_said_in_one_sentence(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", *words], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode == Exit.DISK
    assert ended.stderr == (
        "error: standard output cannot be written (No space left on device); free some space, then start again.\n"
    )
