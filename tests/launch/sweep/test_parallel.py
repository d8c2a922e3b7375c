"""Several runs at a time: each on its own part of the machine, stopped together, and none lost."""

import io
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launch.core import runs
from launch.core.plan import Need
from launch.core.runs import Run
from launch.sweep import loop
from launch.sweep.cli import read
from launch.sweep.command import Plan, StatusLine, as_text
from launch.sweep.folder import Work, others
from launch.sweep.loop import Slot, left_s
from launch.sweep.planned import plan_runs
from launch.sweep.price import Price
from tests.launch.sweep.sweeps import ends, planned, play, rows, sweep, written
from trainer.errors import SettingsError, TrainerError

Sweep = Callable[..., list[Run]]
# A launcher that saves before it ends.
SAVES = f"leave() {{ {ends(75, 'saved.')}; }}; trap 'leave $1' TERM INT; touch $1/ready; while :; do sleep 0.02; done"


@pytest.fixture
def beside(tmp_path: Path, signals: None) -> Iterator[Sweep]:
    """Sweeps, two runs at a time, over runs whose launchers are these lines of shell; $1 is the run's folder."""
    affinity = os.sched_getaffinity(0)
    cores = sorted(affinity)
    two = [Slot((core,), (gpu,)) for core, gpu in zip((cores[0], cores[-1]), "01", strict=True)]

    def beside(*launchers: str, backend: str = "local", **more: Any) -> list[Run]:
        return play(tmp_path, planned(len(launchers), backend), *launchers, places=two, **more)

    yield beside
    assert os.sched_getaffinity(0) == affinity  # the sweep itself goes where it likes


def test_runs_beside_each_other_are_pinned_to_cores_and_gpus_of_their_own(beside: Sweep, tmp_path: Path) -> None:
    meets = "touch $1/../met-%d; until [ -e $1/../met-%d ]; do sleep 0.02; done; nproc > $1/cores; " \
            "echo $CUDA_VISIBLE_DEVICES > $1/gpus; "  # fmt: skip

    ended = beside(meets % (0, 1) + ends(0), meets % (1, 0) + ends(0), ends(0))

    assert [run.state for run in ended] == ["done"] * 3
    assert [(tmp_path / f"seed-{n}" / "cores").read_text() for n in (0, 1)] == ["1\n", "1\n"]
    assert {(tmp_path / f"seed-{n}" / "gpus").read_text() for n in (0, 1)} == {"0\n", "1\n"}
    assert [row["state"] for row in rows(tmp_path).values()] == ["done"] * 3


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_who_stops_the_sweep_stops_all_runs_which_save(number: int, code: int, beside: Sweep, tmp_path: Path) -> None:
    def stop() -> None:
        while not all((tmp_path / f"seed-{n}" / "ready").exists() for n in (0, 1)):
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    threading.Thread(target=stop).start()
    with pytest.raises(TrainerError, match=r"stopped in runs seed-[01], seed-[01]; the same") as stopped:
        beside(SAVES, SAVES, ends(0))

    assert stopped.value.code == code
    assert [row["state"] for row in rows(tmp_path).values()] == ["interrupted", "interrupted", "planned"]


def test_a_run_that_diverges_is_ended_and_is_a_row_with_its_reason(beside: Sweep) -> None:
    learns = 'for n in 1 2 3; do echo "[METRIC] epoch=$n train_loss=0.$((9 - n))"; done; '
    diverges = (
        "trap 'exit 75' TERM; echo '[METRIC] epoch=1 train_loss=2.3'; echo '[METRIC] epoch=2 train_loss=1.0'; "
        "echo '[METRIC] epoch=3 train_loss=3.5'; until [ -e $1/never ]; do sleep 0.02; done"
    )

    ended = beside(learns + ends(0), diverges, diverged_at=3.0)

    assert [run.state for run in ended] == ["done", "failed"]
    assert ended[1].reason.startswith("it diverged: training loss 3.5 in epoch 3 after 1; lower --lr")


def test_a_run_that_is_resumed_is_held_against_the_first_loss_of_all_its_starts(beside: Sweep, tmp_path: Path) -> None:
    (tmp_path / "seed-0").mkdir()
    losses = [2.3, 0.5, 0.0006]
    lines = [json.dumps({"epoch": n, "train_loss": loss}) + "\n" for n, loss in enumerate(losses, 1)]
    (tmp_path / "seed-0/metrics.jsonl").write_text("".join(lines))
    resumes = (
        "trap 'exit 75' TERM; for n in 1 9; do echo \"[METRIC] epoch=$((n + 3)) train_loss=0.00$n\"; sleep 0.2; done; "
    )

    (run,) = beside(resumes + ends(0), diverged_at=3.0)

    assert (run.state, run.reason) == ("done", "")


def test_a_machine_is_divided_into_equal_parts() -> None:
    whole = Slot(tuple(range(8)), ("0", "1", "2", "3"))

    two = loop.slots(whole, 2, planned(2))

    assert two == [Slot((0, 1, 2, 3), ("0", "1")), Slot((4, 5, 6, 7), ("2", "3"))]
    assert two[1].env({"A": "b"}) == {"A": "b", "CUDA_VISIBLE_DEVICES": "2,3"}
    assert loop.machine({"CUDA_VISIBLE_DEVICES": "5,6"}).gpus == ("5", "6")
    assert loop.machine({"PATH": "/nowhere"}).gpus == ()
    hidden = [loop.machine({"CUDA_VISIBLE_DEVICES": text}).gpus for text in ("-1", "", "3,-1,1")]
    assert hidden == [(), (), ("3",)]


@pytest.mark.parametrize(("count", "whole", "sentence"), [
    (9, Slot(tuple(range(8))), "--parallel 9: this machine has 8 cores"),
    (4, Slot(tuple(range(8)), ("0", "1")), "--parallel 4 leaves 0 GPUs for each run, and seed-0 trains on 1"),
])  # fmt: skip
def test_more_runs_than_there_is_room_for_are_refused(count: int, whole: Slot, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        loop.slots(whole, count, planned(1))


def test_jobs_on_machines_of_their_own_run_at_the_same_time_each_with_its_bill(beside: Sweep, tmp_path: Path) -> None:
    meets = "touch $1/../met-%d; until [ -e $1/../met-%d ]; do sleep 0.02; done; "

    ended = beside(meets % (0, 1) + ends(0, usd=1.5), meets % (1, 0) + ends(75, "1 h is over.", usd=2.0), backend="ec2")

    assert [(run.state, run.usd) for run in ended] == [("done", 1.5), ("interrupted", 2.0)]


def test_an_error_of_the_sweeps_own_waits_until_what_runs_has_saved(beside: Sweep, tmp_path: Path) -> None:
    (tmp_path / "seed-1/log.txt").mkdir(parents=True)

    with pytest.raises(IsADirectoryError):
        beside(SAVES, ends(0))

    assert runs.read(tmp_path / "seed-0").state == "interrupted"


def test_a_plan_shows_how_many_run_at_a_time_and_refuses_more_than_the_quota_has_room_for(tmp_path: Path) -> None:
    price = Price(usd_per_hour=2.0, expected_usd=1.0, most_usd=4.0, needs=(Need("G instances", 48, 16, 100),))
    path = written(tmp_path, grid={"seed": [0, 1, 2]}, backend="ec2")
    request = read([str(path), "--parallel", "2", "--out", str(tmp_path / "out")])
    all_runs = plan_runs(request.file, {}, ())
    work = Work(all_runs, all_runs, {run.name: price for run in all_runs}, {})

    text = as_text(Plan(request, work, [Slot(())] * 2))

    assert "total to do" in text
    assert "12.00" in text  # at most, the sum
    assert "\n  2 runs at a time, up to 4.00 USD per hour together\n" in text
    assert ("problem: 2 runs at a time need 96 of 'G instances', 16 are in use, and the quota is 100; give --parallel 1"
            in text)  # fmt: skip
    assert "problem" not in as_text(Plan(request, work, [Slot(())]))


def test_rows_of_a_grid_that_was_larger_stay_in_the_table(tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        runs.write(Run(f"seed-{seed}", tmp_path / f"seed-{seed}", {}, state="done", point={"seed": seed}))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / runs.RUN).write_text("{")

    found = others(planned(2), tmp_path)

    assert [(run.name, run.state) for run in found] == [("seed-2", "done")]


def test_a_dry_run_refuses_the_folder_that_the_run_would(tmp_path: Path) -> None:
    path = written(tmp_path, grid={"seed": [0]})
    (tmp_path / "out").mkdir()
    (tmp_path / "out/sweep.json").write_text('{"name": "other", "backend": "local", "rehearse": false, "id": "x"}')

    refused = sweep(tmp_path, path, "--out", "out", "--dry-run")

    assert refused.returncode == 2
    assert "out has the sweep other, on local; give another --out" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"expected_s": {"a": 60.0, "b": 30.0}, "to_begin": ["a", "b"], "took_s": []}, 90.0),
        ({"expected_s": {}, "to_begin": ["a", "b"], "took_s": []}, None),
        ({"expected_s": {}, "to_begin": ["b", "c"], "took_s": [10.0, 20.0, 90.0]}, 40.0),
        # A third of the first run took 10 s: 20 s of it are left, and 30 s for each of the others.
        ({"expected_s": {}, "to_begin": ["b"], "took_s": [], "current": "a", "elapsed_s": 10.0, "share": 1 / 3}, 50.0),
        ({"expected_s": {"a": 60.0}, "to_begin": [], "took_s": [], "current": "a", "elapsed_s": 45.0}, 15.0),
        ({"expected_s": {"a": 60.0}, "to_begin": [], "took_s": [], "current": "a", "elapsed_s": 90.0}, 0.0),
    ],
)
def test_time_left_is_what_is_expected_or_what_runs_took(arguments: dict[str, object], expected: float | None) -> None:
    left = left_s(**arguments)  # type: ignore[arg-type]

    assert left == (None if expected is None else pytest.approx(expected))


def test_no_line_is_overwritten_where_the_output_is_no_terminal() -> None:
    file = io.StringIO()

    StatusLine(file, {"TERM": "xterm"}).show("1/2  a")

    assert file.getvalue() == ""
