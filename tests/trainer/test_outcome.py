"""How a run ended: what is written is read again, and damage is no outcome."""

import json
from contextlib import suppress
from pathlib import Path

import pytest

from trainer.contract import OUTCOME
from trainer.errors import DataError, Interrupted
from trainer.files import write_atomically
from trainer.outcome import Outcome, parse, read, recorded, state_of

WHOLE = Outcome("failed", 5, "the loss is not a number.", 12.5, 0.25, "j", "2026-11-22T12:00:00Z")


def test_an_outcome_is_read_as_it_was_written(tmp_path: Path) -> None:
    WHOLE.write(tmp_path / "new")

    assert read(tmp_path / "new") == WHOLE
    assert [path.name for path in (tmp_path / "new").iterdir()] == [OUTCOME]


@pytest.mark.parametrize("secret", ["postgres://me:pa55word@db", "hf_" + 34 * "a", "AKIA" + 16 * "Z"])
def test_no_outcome_repeats_a_token_that_a_script_printed(secret: str) -> None:
    """Neither when it is written, nor when it is read as written by a batch script or another version."""
    shown = secret.replace("me:pa55word", "***") if "@" in secret else "***"
    written = Outcome("failed", 5, f"cannot reach {secret}")

    assert written.reason == f"cannot reach {shown}"
    assert parse(json.dumps({"state": "failed", "exit_code": 5, "reason": f"cannot reach {secret}"})) == written


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


@pytest.mark.parametrize(
    ("raised", "state", "code", "reason"),
    [
        (None, "done", 0, ""),
        (DataError("no images."), "failed", 3, "no images."),
        (Interrupted("saved."), "interrupted", 75, "saved."),
        (ValueError("odd"), "failed", 1, "ValueError: odd"),
        (KeyboardInterrupt(), "stopped", 130, "stopped by Ctrl-C"),
    ],
)
def test_a_run_leaves_its_outcome_however_it_ends(
    raised: BaseException | None, state: str, code: int, reason: str, tmp_path: Path
) -> None:
    with suppress(BaseException), recorded(lambda: tmp_path / "run"):
        if raised is not None:
            raise raised

    outcome = read(tmp_path / "run")
    assert outcome is not None
    assert (outcome.state, outcome.exit_code, outcome.reason) == (state, code, reason)
    assert outcome.seconds is not None
    assert outcome.seconds >= 0


def test_the_first_reason_counts(tmp_path: Path) -> None:
    with suppress(DataError), recorded(lambda: tmp_path) as record:
        record(5, "another rank: the loss is not finite.")
        raise DataError("a later error.")

    outcome = read(tmp_path)
    assert outcome is not None
    assert (outcome.exit_code, outcome.reason) == (5, "another rank: the loss is not finite.")


def test_a_folder_is_not_made_for_a_failure_alone(tmp_path: Path) -> None:
    with suppress(DataError), recorded(lambda: None):
        raise DataError("no images.")

    assert list(tmp_path.iterdir()) == []


def test_an_outcome_that_cannot_be_written_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(DataError, match="no images"), recorded(lambda: tmp_path / "file" / "run"):
        raise DataError("no images.")
