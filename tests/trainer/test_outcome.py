"""How a run ended: what is written is read again, and damage is no outcome."""

import json
from pathlib import Path

import pytest

from trainer.contract import OUTCOME
from trainer.files import write_atomically
from trainer.outcome import Outcome, parse, read, state_of

WHOLE = Outcome("failed", 5, "the loss is not a number.", 12.5, 0.25, "j", "2026-11-22T12:00:00Z")


def test_an_outcome_is_read_as_it_was_written(tmp_path: Path) -> None:
    WHOLE.write(tmp_path / "new")

    assert read(tmp_path / "new") == WHOLE
    assert [path.name for path in (tmp_path / "new").iterdir()] == [OUTCOME]


def test_a_later_version_may_say_more() -> None:
    more = json.dumps({**json.loads(WHOLE.as_json()), "gpu_hours": 3})

    assert parse(more) == WHOLE


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"state": "odd", "exit_code": 0}', '{"state": "done"}',
             '{"state": "done", "exit_code": "0"}', '{"state": "done", "exit_code": 0, "usd": "1"}',
             '{"state": "done", "exit_code": 0, "seconds": NaN}'],
)  # fmt: skip
def test_a_damaged_outcome_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / OUTCOME).write_text(text)

    assert read(tmp_path) is None


def test_a_folder_without_one_has_none(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    assert read(tmp_path / "nothing") is None


@pytest.mark.parametrize(
    ("code", "state"),
    [(0, "done"), (75, "interrupted"), (130, "stopped"), (143, "stopped"), (129, "stopped"), (5, "failed"),
     (1, "failed"), (137, "failed")],
)  # fmt: skip
def test_an_exit_code_stands_for_a_state(code: int, state: str) -> None:
    assert state_of(code) == state


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "new")

    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
