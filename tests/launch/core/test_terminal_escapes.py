"""C12: what a training logs, or somebody writes into a tag, does not rewrite the terminal of who looks at it."""

import pytest

from launch.core.tables import table
from launch.core.terminal import harmless

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


@pytest.mark.parametrize("text", ["epoch 1/2\tloss 0.5", "m\u00fcll", "\u6f22\u5b57", "[1] 100%|\u2588| x", ""])
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert harmless(text) == text


def test_colours_go_without_a_trace() -> None:
    assert harmless("\x1b[1;31mred\x1b[0m") == "red"
