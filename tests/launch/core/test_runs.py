"""launch.core.runs: what is written is read again, and what cannot be read is an error with a remedy."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from launch.core import runs
from launch.core.runs import Run
from trainer.errors import SettingsError
from trainer.outcome import Outcome


def record(epoch: int, seconds: float = 1.0) -> dict[str, float]:
    return {"epoch": epoch, "epoch_s": seconds, "world_size": 2}


def left_by_a_trainer(folder: Path, *records: dict[str, float]) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("model: cnn\nepochs: 3\n")
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    return folder


def test_a_run_that_is_written_is_read_again(tmp_path: Path) -> None:
    folder = left_by_a_trainer(tmp_path / "a", record(1))
    run = Run("a", folder, {"model": "cnn"}, (record(1),), "ec2", {"nodes": 2}, {"gpus": 2}, "failed", "no room", 7,
              "2026-11-22T03:00:00Z", 12.5, 1.2, 0.5, True)  # fmt: skip

    runs.write(run)

    assert runs.read(folder) == run
    assert sorted(path.name for path in folder.iterdir()) == ["config.yaml", "metrics.jsonl", "run.json"]


@pytest.mark.parametrize(
    ("count", "updates", "state"), [(0, 0, "running"), (2, 4, "running"), (3, 4, "done"), (1, 5, "done")]
)
def test_a_folder_of_the_trainer_alone_is_done_when_its_epochs_or_updates_are(
    tmp_path: Path, count: int, updates: int, state: str
) -> None:
    folder = left_by_a_trainer(tmp_path / "mine", *({**record(n), "updates": updates} for n in range(1, count + 1)))
    with (folder / "config.yaml").open("a") as file:
        file.write("max_steps: 5\n")

    run = runs.read(folder)

    assert (run.name, run.state, len(run.epochs)) == ("mine", state, count)


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Outcome("done", 0, seconds=30.5), "done"),
        (Outcome("failed", 5, "the loss is not finite.", 12.0, 0.25), "failed"),
        (Outcome("interrupted", 75, "SIGTERM."), "interrupted"),
        (Outcome("stopped", 130), "interrupted"),
    ],
)
def test_a_folder_of_the_trainer_alone_ended_as_its_outcome_says(tmp_path: Path, outcome: Outcome, state: str) -> None:
    folder = left_by_a_trainer(tmp_path / "mine", record(1))
    outcome.write(folder)

    run = runs.read(folder)

    assert run.state == state
    assert (run.exit_code, run.reason, run.seconds, run.usd) == (
        outcome.exit_code, outcome.reason, outcome.seconds, outcome.usd,
    )  # fmt: skip


def test_what_the_sweep_wrote_goes_before_the_trainers_outcome(tmp_path: Path) -> None:
    folder = left_by_a_trainer(tmp_path / "a", record(1))
    runs.write(Run("a", folder, {}, state="interrupted", seconds=9.0))
    Outcome("done", 0, seconds=1.0).write(folder)

    assert (runs.read(folder).state, runs.read(folder).seconds) == ("interrupted", 9.0)


def test_a_damaged_outcome_does_not_hide_a_run(tmp_path: Path) -> None:
    folder = left_by_a_trainer(tmp_path / "a", record(1), record(2), record(3))
    (folder / "outcome.json").write_text("{")

    assert runs.read(folder).state == "done"


def test_what_a_later_version_wrote_beside_is_left_alone(tmp_path: Path) -> None:
    runs.write(Run("a", tmp_path, {}))
    written = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**written, "colour": "blue"}))

    assert runs.read(tmp_path).name == "a"


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    folder = left_by_a_trainer(tmp_path / "a", record(1))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 2, "epo')

    assert [one["epoch"] for one in runs.read(folder).epochs] == [1]


@pytest.mark.parametrize(
    "content",
    ["{", '{"settings": {}}'],
    ids=lambda content: content[:40],
)
def test_a_damaged_run_is_an_error_that_names_its_folder(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)

    with pytest.raises(SettingsError, match=rf"{tmp_path} has a run that cannot be read .*; remove it"):
        runs.read(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.yaml", "epochs: 3\nepochs: 4\n", "epochs is set twice, in lines 1 and 2"),
        ("config.yaml", None, "Is a directory"),
        ("metrics.jsonl", "5\n", r"metrics\.jsonl has a line that is not a record: 5; remove the run"),
    ],
)
def test_unreadable_files_in_a_run_folder_are_errors(
    name: str, content: str | None, message: str, tmp_path: Path
) -> None:
    """None: a folder of that name."""
    folder = left_by_a_trainer(tmp_path / "a", record(1))
    (folder / name).unlink(missing_ok=True)
    if content is None:
        (folder / name).mkdir()
    else:
        (folder / name).write_text(content)

    with pytest.raises(SettingsError, match=message):
        runs.read(folder)


def test_all_runs_below_a_place_are_found_once_and_in_order(tmp_path: Path) -> None:
    left_by_a_trainer(tmp_path / "sweep" / "b", record(1))
    left_by_a_trainer(tmp_path / "sweep" / "a", record(1))
    runs.write(Run("c", tmp_path / "sweep" / "c", {}, state="failed"))

    found = runs.find([tmp_path / "sweep", tmp_path / "sweep" / "a"])

    assert [run.name for run in found] == ["a", "b", "c"]


def test_the_first_epoch_is_not_steady_unless_it_is_the_only_one(tmp_path: Path) -> None:
    several = Run("a", tmp_path, {}, (record(1, 9.0), record(2, 1.0), record(3, 2.0), record(4, 6.0)))

    assert several.typical("epoch_s") == 2.0
    assert Run("a", tmp_path, {}, (record(1, 9.0),)).typical("epoch_s") == 9.0
    assert Run("a", tmp_path, {}).typical("epoch_s") is None
    assert several.typical("no such number") is None


def test_replicas_are_what_the_newest_epoch_says(tmp_path: Path) -> None:
    assert Run("a", tmp_path, {}).replicas == 0
    assert Run("a", tmp_path, {}, (record(1),)).replicas == 2
    assert Run("a", tmp_path, {}, ({"world_size": 1, "replicas": 4},)).replicas == 4


@pytest.mark.parametrize(
    ("value", "found"),
    [(0.5, 0.5), ("fast", None), (float("nan"), None), (float("inf"), None)],
    ids=lambda value: str(value)[:5],
)
def test_only_finite_numbers_are_numbers(value: object, found: float | None) -> None:
    assert runs.number({"step_ms": value}, "step_ms") == found


@pytest.mark.parametrize("odd", ["x", float("nan")], ids=str)
def test_what_a_training_wrote_of_its_epochs_stops_no_report(odd: object, tmp_path: Path) -> None:
    epoch = {**record(1), "replicas": 1, "epoch": 1, "updates": 3}
    hostile = [{**epoch, name: odd} for name in epoch]
    folder = left_by_a_trainer(tmp_path / "a", *hostile, dict.fromkeys(epoch, odd))
    (folder / "config.yaml").write_text(f"epochs: 3\nimage_size_start: {odd}\nmax_steps: 5\n")

    for count in range(1, len(hostile) + 2):
        run = replace(runs.read(folder), epochs=runs.read_epochs(folder)[:count])
        assert run.replicas in (0, 1, 2)
        assert run.whole_s <= count
        assert run.typical("epoch_s") in (1.0, None)
