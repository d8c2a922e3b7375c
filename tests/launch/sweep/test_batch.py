"""Runs that were submitted together: followed where they are, ended where the others would fail, none begun twice."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from launch.core import shell
from launch.core.backend import Backend
from launch.core.errors import Ended
from launch.core.job import Batch, Member
from launch.core.runs import Run
from launch.core.shell import this_python
from launch.sweep.cli import read
from launch.sweep.command import act
from launch.sweep.folder import Work
from launch.sweep.loop import Slot, collectable, submitted, sweep
from launch.sweep.planned import Planned
from launch.sweep.price import Price
from launch.sweep.runner import Context, command
from tests.launch.sweep.sweeps import context_in, ends, planned, written
from trainer.errors import SettingsError

SEEN: list[tuple[list[Member], Batch]] = []


def submits(members: list[Member], batch: Batch) -> list[str]:
    """A backend's: the last first, and the second is left out."""
    SEEN.append((members, batch))
    return [members[2].name, members[0].name]


def work(count: int, before: dict[str, Run] | None = None, backend: Backend | None = None) -> Work:
    runs = planned(count, "slurm")
    if backend:
        runs = [replace(run, backend=backend) for run in runs]
    return Work(runs, runs, {run.name: Price() for run in runs}, before or {})


def test_launchers_attach_to_what_is_submitted_in_its_order_and_launch_the_rest(tmp_path: Path) -> None:
    own = replace(work(1).runs[0].backend, batch=f"{__name__}:submits")
    runs = {f"seed-{n}": Run(f"seed-{n}", tmp_path, {}, state=s) for n, s in ((1, "interrupted"), (2, "running"))}

    (tmp_path / "link").symlink_to(tmp_path)  # as people have one to their scratch
    out = tmp_path / "link"
    done, context = submitted(work(3, runs, own), context_in(out), 2)

    members, batch = SEEN.pop()
    assert [member.is_unseen for member in members] == [True, False, True]
    assert (batch.at_once, batch.folder) == (2, out)
    assert batch.name not in [member.name for member in members]
    assert [run.name for run in done.todo] == ["seed-2", "seed-0", "seed-1"]
    words = [command(run, context) for run in done.todo]
    assert words[0] == [*this_python(), "-m", "launch.slurm", "attach", str(out / "seed-2"), "--outcome",
                        str(tmp_path / "seed-2/launcher")]  # fmt: skip
    assert ["attach" in one for one in words] == [True, True, False]


def test_how_a_run_ended_before_anybody_attached_is_kept(tmp_path: Path, signals: None) -> None:
    (tmp_path / "seed-0").mkdir()
    (tmp_path / "seed-0/outcome.json").write_text('{"state": "failed", "exit_code": 3, "reason": "no images."}')
    todo = work(1)
    own = context_in(tmp_path)
    own = replace(
        own, attached=frozenset({own.job(todo.todo[0])}), launcher=lambda run, context: ["sh", "-c", "exit 3"]
    )

    (run,) = sweep(todo, own, [Slot(())])

    assert (run.state, run.reason) == ("failed", "no images.")


def test_runs_that_would_fail_like_the_others_are_ended_before_slurm_begins_them(
    tmp_path: Path, signals: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[list[str]]()

    def record(words: list[str], env: object) -> shell.Captured:
        asked.append(words)
        return shell.Captured(0, "", "")

    monkeypatch.setattr(shell, "run_captured", record)

    def words(run: Planned, context: Context) -> list[str]:
        return ["sh", "-c", ends(3, "no folder nowhere."), "sh", str(context.folder(run))]

    own = replace(context_in(tmp_path), batch="tiny-array-1", launcher=words)

    with pytest.raises(Ended, match=r"failed alike.* no folder nowhere\. \d runs? w.+ not started"):
        sweep(work(5), own, [Slot(())] * 2)

    assert asked == [[*this_python(), "-m", "launch.slurm", "stop", "tiny-array-1"]]


def test_a_job_that_diverges_is_stopped_by_its_backend_as_a_signal_would_not_reach_it(
    tmp_path: Path, signals: None
) -> None:
    todo, folder = work(1), tmp_path / "seed-0"
    own = context_in(tmp_path)
    job = own.job(todo.todo[0])
    tools = {
        "squeue": f"[ -e {folder}/stopped ] || "
                  f"printf '7\\tRUNNING\\tNone\\t0:01\\t29:59\\t1\\tn0\\tmain\\tN/A\\t{folder}/job.sbatch\\t{job}\\t"
                  f"aws-ddp-toolkit:{job}\\n'",
        "scancel": f'echo "$*" >{folder}/stopped',
    }  # fmt: skip
    for name, does in tools.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{does}\n")
        (tmp_path / name).chmod(0o755)
    diverges = (
        "echo '[METRIC] epoch=1 train_loss=1.0'; echo '[METRIC] epoch=2 train_loss=3.5'; "
        "until [ -e $1/stopped ]; do sleep 0.02; done; exit 130"
    )
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    own = replace(
        own, env=env, diverged_at=3.0, launcher=lambda run, context: ["sh", "-c", diverges, "sh", str(folder)]
    )

    (run,) = sweep(todo, own, [Slot(())])

    assert (run.state, run.reason[:13]) == ("failed", "it diverged: ")
    assert (folder / "stopped").read_text() == "--batch --signal=USR1 7\n"
    assert (folder / "stop").read_text() == "7"
    assert json.loads((folder / "run.json").read_text())["state"] == "failed"


# ---- jobs in a queue of AWS


@pytest.mark.parametrize("backend", ["ec2", "sagemaker"])
def test_collecting_attaches_to_jobs_that_have_ended_only_and_starts_none(
    backend: str, tmp_path: Path, signals: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after two that failed alike.  The last has no job."""
    todo, own = queued(5, backend), context_in(tmp_path)
    known = dict(zip(map(own.job, todo.runs), ("failed", "waiting", "failed", "done"), strict=False))

    def status(words: list[str], env: object) -> shell.Captured:
        assert words[len(this_python()) :][:3] == ["-m", f"launch.{backend}", "status"]
        state = next((known[word] for word in words if word in known), None)
        return shell.Captured(0, json.dumps({"status": state}), "") if state else shell.Captured(2, "", "no such job")

    def attach(run: Planned, context: Context) -> list[str]:
        assert "attach" in command(run, context)
        does = ends(0) if known[context.job(run)] == "done" else ends(3, "no images.")
        return ["sh", "-c", does, "sh", str(context.folder(run))]

    monkeypatch.setattr(shell, "run_captured", status)
    rows = sweep(*collectable(todo, replace(own, launcher=attach)), [Slot(())])

    assert [run.state for run in rows] == ["failed", "running", "failed", "done", "planned"]
    assert "waiting" in rows[1].reason
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 6


def test_collecting_ends_where_aws_does_not_say_which_jobs_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "run_captured", lambda words, env: shell.Captured(4, "", "error: no access.\n"))

    with pytest.raises(Ended, match=r"no access\.") as ended:
        collectable(queued(1), context_in(tmp_path))

    assert ended.value.code == 4


@pytest.mark.parametrize("more", [["--queue", "demo", "--dry-run"], ["--queue", "demo", "--rehearse"],
                                  [], ["--queue", "demo"]])  # fmt: skip
def test_collecting_is_for_sweeps_that_have_put_jobs_into_a_queue(more: list[str], tmp_path: Path) -> None:
    """The last one has not begun."""
    words = [str(written(tmp_path, grid={"lr": [0.1]})), "--backend", "ec2", *more]

    with pytest.raises(SettingsError, match=r"--collect|no sweep was started"):
        act(read([*words, "--collect", "--out", str(tmp_path / "out")]), {})

    assert not (tmp_path / "out").exists()


def queued(count: int, backend: str = "sagemaker") -> Work:
    runs = planned(count, backend, queue="demo")
    return Work(runs, runs, {run.name: Price() for run in runs}, {})


def test_a_run_that_its_launcher_has_only_submitted_is_followed_to_its_end(tmp_path: Path, signals: None) -> None:
    """Its submission failed with those of the others; it was done, without a result, once it was in the queue."""

    def words(run: Planned, context: Context) -> list[str]:
        does = ends(3, "no images.") if context.is_attached(run) else "exit 0"
        return ["sh", "-c", does, "sh", str(context.folder(run))]

    (run,) = sweep(queued(1), replace(context_in(tmp_path), launcher=words), [Slot(())])

    assert (run.state, run.reason) == ("failed", "no images.")


@pytest.mark.parametrize(("does", "times"), [(ends(3, "no images."), 2), ('kill -INT "$PPID"; sleep 1; exit 130', 1)])
def test_jobs_in_a_queue_that_a_sweep_leaves_are_named_and_go_on(
    does: str, times: int, tmp_path: Path, signals: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of them may train: two runs without data ended them, and Ctrl-C left them without a word."""
    monkeypatch.setattr(shell, "run_captured", lambda *words: pytest.fail("stops a job"))
    todo, own = queued(4), context_in(tmp_path)
    jobs = [own.job(run) for run in todo.runs]
    own = replace(
        own,
        batch="-",
        attached=frozenset(jobs),
        launcher=lambda run, context: ["sh", "-c", does, "sh", str(context.folder(run))],
    )

    with pytest.raises(Ended) as stopped:
        sweep(todo, own, [Slot(())])

    names, _, stop = str(stopped.value).splitlines()[-1].strip().partition("; do ")
    assert names.removeprefix("for job in ").split() == jobs[times:]
    assert stop == "python -m launch.sagemaker stop $job; done"
