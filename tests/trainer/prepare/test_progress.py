"""How far a preparation is, on a terminal and elsewhere."""

import re

import pytest

from trainer.prepare.pipeline import shown


def test_a_terminal_has_a_bar_from_its_first_moment_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is done no speed is known, of which a bar once made a traceback."""
    monkeypatch.setenv("COLUMNS", "100")
    said: list[str] = []

    with shown("preparing", 4_000, interactive=True, say=said.append) as count:
        count(1_000)
        count(3_000)

    bar = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert "preparing" in bar
    assert "0/4000" in bar
    assert "left" in bar
    assert said == []
