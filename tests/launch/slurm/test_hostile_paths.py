"""C11: a path becomes a line of the script, which Slurm's shell runs, and must not become two."""

from pathlib import Path

import pytest

from launch.slurm.script import _quoted
from trainer.errors import SettingsError


@pytest.mark.parametrize("end", ["\n", "\r", "\x0b", "\x0c", "\x1b[2K", "\x85", "\u2028", "\u202e", "\0"])
def test_a_path_that_would_end_its_line_is_refused(end: str) -> None:
    with pytest.raises(SettingsError, match="has characters that do not print") as caught:
        _quoted(f"--chdir={Path('/home/me') / f'a{end}touch ran'}")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["a b", "it's", 'a"b', "$(touch ran)", "`id`", "#", "müll", "a" * 10_000])
def test_other_odd_names_stay_on_their_line_in_one_piece(name: str) -> None:
    import shlex

    line = _quoted(f"--chdir=/home/{name}")
    assert line.isprintable()
    assert not any(mark in name for mark in " #'\"") or shlex.split(line) == [f"--chdir=/home/{name}"]
