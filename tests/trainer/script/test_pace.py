"""How far a script is, and how fast, by what its metric lines say."""

import json
from pathlib import Path
from typing import Any

import pytest

from trainer.script.pace import Pace, PaceFile, parse, share_done


@pytest.mark.parametrize(
    ("values", "share"),
    [
        ({"progress": 0.25, "epoch": 1, "epochs": 2}, 0.25),
        ({"epoch": 1, "epochs": 2, "step": 9, "steps": 10}, 0.5),
        ({"epoch": 1.5, "epochs": 3}, 0.5),
        ({"step": 9, "steps": 10, "loss": 3.0}, 0.9),
        ({"step": 11, "steps": 10}, 1.0),
        ({"step": 9, "steps": 0}, None),
        ({"step": -1, "steps": 10}, None),
        ({"progress": 25}, None),
        ({"progress": None, "step": 9}, None),
        ({"loss": 0.5}, None),
    ],
)
def test_metrics_say_which_share_is_done(values: dict[str, Any], share: float | None) -> None:
    assert share_done(values) == share


def test_the_rest_takes_as_long_as_it_took_so_far_for_its_share() -> None:
    assert Pace(done=0.4, since=0.1, seconds=300.0, at=0.0).rest_s == pytest.approx(600)
    assert Pace(done=1.0, since=0.1, seconds=300.0, at=0.0).rest_s == 0
    assert Pace(done=0.109, since=0.1, seconds=300.0, at=0.0).rest_s is None  # too little to extrapolate


def noted(path: Path, *records: tuple[float, dict[str, Any]]) -> Pace | None:
    file = PaceFile(path)
    for now, record in records:
        file.note(record, now)
    file.write()
    return parse(path.read_bytes()) if path.exists() else None


def test_the_pace_is_from_the_first_metrics_of_this_start_to_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "pace.json"

    assert noted(path, (1000.0, {"loss": 3.0})) is None
    assert noted(path, (1000.0, {"step": 20, "steps": 100}), (1060.0, {"step": 50}), (1061.0, {"loss": 1.0})) == Pace(
        0.5, 0.2, 61.0, 1061.0
    )


def test_it_is_written_at_once_then_now_and_then_and_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "pace.json"
    file, seen = PaceFile(path), list[float]()

    for now in (0.0, 1.0, 9.0, 11.0, 12.0):
        file.note({"progress": now / 100}, now)
        seen.append(json.loads(path.read_text())["done"])
    file.write()

    assert seen == [0.0, 0.0, 0.0, 0.11, 0.11]
    assert json.loads(path.read_text())["done"] == 0.12


WHOLE = {"done": 0.5, "since": 0.2, "seconds": 60, "at": 1060}
DAMAGED = [{"done": 2}, {"since": -1}, {"seconds": 1e300}, {"at": "now"}, {"done": True}, {"at": float("nan")}]


@pytest.mark.parametrize("damaged", [None, b"", b"[1]", b"{}", *(json.dumps(WHOLE | one).encode() for one in DAMAGED)])
def test_every_training_may_write_it_so_what_cannot_be_is_none(damaged: bytes | None) -> None:
    assert parse(json.dumps(WHOLE).encode()) == Pace(0.5, 0.2, 60, 1060)
    assert parse(damaged) is None
