"""Sweeps that train here: what they leave, how failures look, and that nothing is done twice or lost."""

import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launch.core import runs
from launch.core.errors import Ended
from launch.core.runs import Run, State
from launch.core.signals import kill_marked
from launch.sweep.folder import earlier, job_name, left
from launch.sweep.grid import parse
from launch.sweep.loop import why_give_up
from launch.sweep.planned import plan_runs
from tests.launch.sweep.sweeps import TINY, ends, planned, play, rows, start, sweep, written
from tests.processes import left_of, processes_with
from trainer.contract import CHECKPOINTS
from trainer.errors import SettingsError, TrainerError

# A signal meets it at work.
LONG = {**TINY, "epochs": 100_000}


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """No training goes on after a test that failed."""
    yield
    kill_marked(f"TEST_SWEEP={tmp_path}\0")


@pytest.mark.timeout(240)  # several trainings, 7 s of a quiet core
def test_a_sweep_leaves_a_row_a_run_and_is_not_run_again(tmp_path: Path) -> None:
    path, out = written(tmp_path, grid={"gpus": [1]}, runs=[{"name": "wild", "lr": 1e12}]), tmp_path / "out"

    first = sweep(tmp_path, path, "--out", out, "--usd-per-hour", 36)
    again = sweep(tmp_path, path, "--out", out)

    assert first.returncode == 0, first.stdout + first.stderr
    found = rows(out)
    assert [(row["state"], row["gpus"], row["replicas"]) for row in found.values()] == [
        ("done", "1", "1"), ("failed", "", ""),
    ]  # fmt: skip
    assert found["wild"]["reason"].startswith("the loss is not finite")
    assert found["wild"]["exit_code"] == "5"
    one = runs.read(out / "gpus-1")
    assert float(found["gpus-1"]["seconds_per_epoch"]) == one.epochs[0]["epoch_s"]
    assert float(found["gpus-1"]["usd"]) == pytest.approx((one.seconds or 0) / 100)
    assert float(found["gpus-1"]["usd_per_epoch"]) == pytest.approx(
        (one.epochs[0]["epoch_s"] + one.epochs[0]["eval_s"]) / 100
    )
    assert (one.settings["model"], one.options, one.point) == ("cnn", {"nproc_per_node": 1}, {"gpus": 1})
    assert "[METRIC]" in (out / "gpus-1" / "log.txt").read_text()
    assert f"python -m launch.report {out}" in first.stdout
    assert "tiny, on local: 0 of 2 runs to do" in again.stdout
    assert again.returncode == 0


def test_other_settings_in_the_same_folder_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    runs.write(Run("gpus-1", out / "gpus-1", {"epochs": 9}, options={"nproc_per_node": 1}))

    refused = sweep(tmp_path, written(tmp_path, grid={"gpus": [1]}), "--out", out)

    assert refused.returncode == 2
    assert "has a run with other settings (epochs was 9, now 1" in refused.stderr


@pytest.mark.timeout(240)  # several trainings, 7 s of a quiet core
@pytest.mark.slow("a killed sweep resumes, and leaves nothing running")
def test_a_sweep_that_was_killed_or_stopped_goes_on_and_nothing_of_it_is_left_running(tmp_path: Path) -> None:
    path, out = written(tmp_path, fixed=LONG, grid={"seed": [0, 1]}), tmp_path / "out"
    metrics, log = out / "seed-0" / "metrics.jsonl", out / "seed-0" / "log.txt"
    killed = start(tmp_path, path, "--out", out, TEST_SWEEP=str(tmp_path))
    wait_until(lambda: metrics.exists() and metrics.stat().st_size > 0)
    wait_until(lambda: any((out / "seed-0" / CHECKPOINTS).glob("*.pt")))  # without which nothing could be resumed
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=60)
    before, orphans = runs.read(out / "seed-0"), set(processes_with(f"TEST_SWEEP={tmp_path}"))
    assert before.state == "running"
    assert orphans

    again = start(tmp_path, path, "--out", out, "--only", "seed-0", TEST_SWEEP=str(tmp_path))
    wait_until(lambda: "resuming at epoch" in log.read_text())
    assert not orphans & set(processes_with(f"TEST_SWEEP={tmp_path}"))
    size = metrics.stat().st_size
    wait_until(lambda: metrics.stat().st_size > size)
    again.send_signal(signal.SIGINT)
    _, err = again.communicate(timeout=60)

    assert again.returncode == 130, err
    assert "stopped in run seed-0; the same command resumes the sweep" in err
    assert left_of(f"TEST_SWEEP={tmp_path}") == []
    assert [row["state"] for row in rows(out).values()] == ["interrupted", "planned"]
    after = runs.read(out / "seed-0")
    assert [epoch["epoch"] for epoch in after.epochs] == list(range(1, len(after.epochs) + 1))
    assert after.epochs[0] == before.epochs[0]  # of which there is a checkpoint: it was not trained again
    assert after.started == before.started


def test_two_sweeps_do_not_work_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with (tmp_path / "out" / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        refused = sweep(tmp_path, written(tmp_path, grid={"gpus": [1]}), "--out", "out")

    assert refused.returncode == 2
    assert "another sweep is running in out" in refused.stderr


Sweep = Callable[..., list[Run]]


@pytest.fixture
def played(tmp_path: Path, signals: None) -> Sweep:
    """Sweeps over runs whose launchers are these lines of shell; $1 is the run's folder."""

    def played(*launchers: str, backend: str = "local", **more: Any) -> list[Run]:
        return play(tmp_path, planned(len(launchers), backend), *launchers, **more)

    return played


@pytest.mark.parametrize(
    "result", ["mkdir {0}/metrics.jsonl", "echo 5 >{0}/metrics.jsonl", "mkdir -p {0}--2/x; touch {0}/x {0}--2/x/y"]
)
def test_no_result_that_cannot_be_read_ends_the_sweep(played: Sweep, tmp_path: Path, result: str) -> None:
    fetched = tmp_path / "runs" / job_name("tiny", "seed-0", "id")
    ended = played(
        f"mkdir -p {fetched}; {result.format(fetched)}; echo '[METRIC] epoch=1'", "true", backend="sagemaker"
    )
    assert [(run.state, run.exit_code) for run in ended] == [("failed", 3), ("done", 0)]
    assert ended[0].reason.startswith("its results cannot be read: ")


def states(out: Path) -> list[str]:
    return [row["state"] for row in rows(out).values()]


def test_failures_that_the_others_would_share_end_the_sweep(played: Sweep, tmp_path: Path) -> None:
    fails = ends(3, "no folder nowhere.")

    with pytest.raises(Ended, match=r"failed alike.* no folder nowhere\. 1 run was not started\.") as ended:
        played(fails, fails, fails)

    assert ended.value.code == 3
    assert states(tmp_path) == ["failed", "failed", "planned"]


@pytest.mark.parametrize(("name", "code"), [("INT", 130), ("TERM", 75)])
def test_who_stops_a_sweep_just_as_a_run_ends_gets_no_next_one(
    name: str, code: int, played: Sweep, tmp_path: Path
) -> None:
    with pytest.raises(TrainerError, match="stopped after run seed-0; the same command resumes") as stopped:
        played(f"trap '' {name}; kill -{name} $PPID; {ends(0)}", ends(0))

    assert stopped.value.code == code
    assert states(tmp_path) == ["done", "planned"]


def test_a_launcher_that_cannot_take_its_machines_down_says_so(played: Sweep, tmp_path: Path) -> None:
    with pytest.raises(Ended, match="stopped in run seed-0"):
        played(f"trap '' INT; kill -INT $PPID; sleep 0.3; {ends(4, 'a machine is left.')}")

    assert rows(tmp_path)["seed-0"]["reason"] == "a machine is left."


def test_a_launcher_that_is_killed_has_failed_with_a_reason(played: Sweep) -> None:
    ended = played("kill -KILL $$", ends(0))

    assert [run.state for run in ended] == ["failed", "done"]
    assert "killed by SIGKILL" in ended[0].reason


def test_the_outcome_of_an_earlier_start_is_not_taken_for_this_one(played: Sweep, tmp_path: Path) -> None:
    played(ends(75, "12 h are over."))

    (run,) = played("kill -KILL $$")

    assert run.state == "failed"


@pytest.mark.parametrize(
    ("ended", "is_hopeless"),
    [
        ([(4, "no credentials")], True),
        ([(0, ""), (4, "no machines")], False),
        ([(0, ""), (4, "no machines"), (4, "no machines")], True),
        ([(2, "a"), (2, "b")], False),
        ([(5, "a"), (5, "a")], False),
        ([(7, "full")], True),
    ],
)
def test_a_sweep_ends_early_only_where_the_next_run_fails_too(ended: list[tuple[int, str]], is_hopeless: bool) -> None:
    started = [
        Run("a", Path(), {}, state="failed" if code else "done", reason=reason, exit_code=code)
        for code, reason in ended
    ]

    assert bool(why_give_up(started)) == is_hopeless


def test_only_what_is_done_or_failed_is_left_out_and_failures_only_until_asked_for() -> None:
    four, kinds = planned(4), list[State](["done", "failed", "interrupted", "running"])
    before = {run.name: Run(run.name, Path(), {}, state=state) for run, state in zip(four, kinds, strict=True)}

    assert [run.name for run in left(four, before, retry_failed=False)] == ["seed-2", "seed-3"]
    assert [run.name for run in left(four, before, retry_failed=True)] == ["seed-1", "seed-2", "seed-3"]


def test_a_time_limit_may_change_and_so_may_what_kept_a_run_from_its_first_epoch(tmp_path: Path) -> None:
    content = {"name": "tiny", "backend": "ec2", "fixed": TINY, "grid": {"gpus": [1]}}
    (run,) = plan_runs(parse(content, ""), {"max_hours": "2"}, ())
    options = {**run.shown_options, "max_hours": 1.0}
    runs.write(Run(run.name, tmp_path / run.name, run.settings, backend="ec2", options=options, state="failed"))

    assert list(earlier([run], tmp_path, retry_failed=False)) == ["gpus-1"]
    runs.write(Run(run.name, tmp_path / run.name, {"epochs": 9}, backend="ec2", options=options, state="failed"))
    assert list(earlier([run], tmp_path, retry_failed=True)) == ["gpus-1"]
    with pytest.raises(SettingsError, match="other settings"):
        earlier([run], tmp_path, retry_failed=False)


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "out" / "runs.csv").mkdir(parents=True)

    refused = sweep(tmp_path, written(tmp_path, grid={"gpus": [1]}), "--out", "out")

    assert refused.returncode == 6
    assert "error: cannot write to out (Is a directory, out/runs.csv" in refused.stderr


def wait_until(condition: Callable[[], bool], within_s: float = 90.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "the condition did not hold in time"
        time.sleep(0.02)
