"""The runs of a sweep in a queue: each submitted once, whatever becomes of the command; never more than the limit."""

import csv
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from launch.core.job import Batch, Member
from launch.rehearse.aws.batch.jobs import ACTIVE
from launch.rehearse.aws.batch.moto_patches import make_queue
from launch.rehearse.aws.batch.scheduler import step
from launch.rehearse.aws.sagemaker.changes import advance, complete, fail
from launch.sagemaker.batch import submit
from launch.sweep.table import CSV
from tests.conftest import ROOT
from tests.launch.faults import EVERY, Died, Faults, injected
from tests.launch.sagemaker.agent import serving
from tests.launch.sagemaker.known import job
from tests.launch.sagemaker.test_queue import NO_DATA
from tests.launch.sagemaker.world import Stage

MACHINES = 4


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage.opened() as opened:
        make_queue(opened.account.rules, "aws-ddp-toolkit-demo", MACHINES, opened.account.region, opened.account.id)
        yield opened


def members(count: int, **settings: Any) -> list[Member]:
    asked = {"instance_type": "ml.g5.2xlarge", "queue": "demo", **settings}
    names = [f"run-{number}" for number in range(count)]
    return [Member(name, Path(name), job(job_name=None, **asked), is_unseen=True) for name in names]


def batch(said: list[str]) -> Batch:
    return Batch(".array", Path(), MACHINES, {}, said.append)


@pytest.mark.timeout(300)
def test_runs_are_submitted_once_and_each_is_accounted_for(stage: Stage) -> None:
    """Over a queue of four machines.  The command that submits them is killed twice; one run fails."""
    runs, said = members(8), list[str]()
    for at in (1, 4):  # of its submissions
        with injected(Faults()) as faults, suppress(Died):
            faults.on("SubmitServiceJob", EVERY["died after"](), at)
            submit(runs, batch(said))
    assert submit(runs, batch(said)) == [member.name for member in runs]

    rules, rounds, most = stage.account.rules, 0, 0
    assert sorted(one.request["jobName"] for one in rules.batch.jobs.values()) == sorted(run.name for run in runs)
    while [one for one in stage.account.jobs.values() if not one.has_ended]:
        rounds += 1
        at_work = [one for one in stage.account.jobs.values() if not one.has_ended]
        most = max(most, len(at_work), sum(one.status in ACTIVE for one in rules.batch.jobs.values()))
        for one in at_work:
            advance(one)
            if one.name[8:-32] == "run-3":
                fail(one, NO_DATA, 60)
            else:
                complete(one, 600)
        step(rules)

    assert (most, rounds) == (MACHINES, -(-len(runs) // MACHINES))
    states = [one.status for one in rules.batch.jobs.values()]
    assert (states.count("SUCCEEDED"), states.count("FAILED")) == (len(runs) - 1, 1)


def test_ended_runs_that_nobody_followed_are_attached_to_and_not_submitted_again(stage: Stage) -> None:
    runs = members(2)
    submit(runs, batch([]))
    for one in list(stage.account.jobs.values()):
        complete(one)
    step(stage.account.rules)

    assert submit(runs, batch([])) == ["run-0", "run-1"]
    assert len(stage.account.rules.batch.jobs) == 2


def test_without_a_queue_runs_are_launched_one_by_one(stage: Stage) -> None:
    assert submit(members(2, queue=None), batch([])) == []


def test_a_run_that_cannot_be_submitted_is_left_to_its_own_launcher(stage: Stage) -> None:
    said = list[str]()
    small, large = members(1), members(2, nodes=MACHINES + 1)[1:]

    assert submit([*small, *large], batch(said)) == ["run-0"]
    assert "run-1 is not in the queue" in said[-1]


SWEEP = """\
name: rates
about: Four learning rates.
backend: sagemaker
options: {sagemaker: {instance_type: ml.g5.2xlarge, max_hours: 1}}
fixed: {model: cnn, dataset: digits, epochs: 1}
grid: {lr: [0.1, 0.2, 0.3]}
"""


@pytest.mark.timeout(300)
@pytest.mark.slow("a sweep through a queue whose command is killed goes on, and has a row for every run")
def test_a_killed_sweep_goes_on_where_its_jobs_are(stage: Stage, tmp_path: Path) -> None:
    """launch.sweep as a process; a thread of this one is SageMaker."""
    (tmp_path / "rates.yaml").write_text(SWEEP)
    account, ended = stage.account, threading.Event()
    account.rules.now = lambda: datetime.now(UTC)

    def train() -> None:
        while not ended.wait(0.2):
            step(account.rules)
            for one in [one for one in list(account.jobs.values()) if not one.has_ended]:
                advance(one)
                if "lr-0-3" in one.request["OutputDataConfig"]["S3OutputPath"]:
                    fail(one, NO_DATA, 60)
                elif killed.is_set():
                    complete(one, 600)

    killed, trainer = threading.Event(), threading.Thread(target=train)
    with serving() as url:
        env = {**os.environ, "AWS_ENDPOINT_URL": url, "AWS_DEFAULT_REGION": account.region, "PYTHONPATH": str(ROOT)}
        words = [sys.executable, "-m", "launch.sweep", "rates.yaml", "--backend", "sagemaker", "--queue", "demo"]
        words += ["--yes", "--parallel", "3"]
        trainer.start()
        first = subprocess.Popen(words, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        while len(account.rules.batch.jobs) < 2 and first.poll() is None:
            time.sleep(0.1)
        first.kill()
        first.communicate()
        killed.set()
        again = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        ended.set()
        trainer.join()

    assert again.returncode == 0, again.stdout + again.stderr
    assert len(account.rules.batch.jobs) == 3
    rows = list(csv.DictReader((tmp_path / "runs/sweep-rates" / CSV).read_text().splitlines()))
    assert sorted(row["state"] for row in rows) == ["done", "done", "failed"]
