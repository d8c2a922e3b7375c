"""The runs of a sweep in EC2's queue: each is submitted once, whatever becomes of the command, and followed."""

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from launch.ec2 import batch
from launch.rehearse.accounts import vcpus
from launch.rehearse.aws.batch.container_operations import make_fargate_queue
from launch.rehearse.aws.batch.scheduler import step
from launch.sweep.folder import Work
from launch.sweep.loop import Slot, submitted, sweep
from launch.sweep.planned import Planned
from launch.sweep.price import Price
from launch.sweep.runner import Context, command
from tests.launch.ec2.world import Stage
from tests.launch.faults import EVERY, Died, Faults, injected
from tests.launch.sweep.sweeps import context_in, ends, planned


def test_a_sweep_submits_its_runs_once_and_follows_them_however_often_it_is_killed(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies twice after a submission; then the first launcher ends while no sweep follows it."""
    account = stage.account
    make_fargate_queue(account.rules, "demo", account.region, account.id, vcpus(account))
    monkeypatch.setattr(batch, "Runtime", lambda say: replace(stage.runtime(), say=say))
    runs, attached = planned(3, "ec2", queue="demo"), list[str]()

    def launcher(run: Planned, context: Context) -> list[str]:
        words = command(run, context)
        attached.append(words[words.index("attach") + 1])
        return ["sh", "-c", ends(0), "sh", str(context.folder(run))]

    context = context_in(tmp_path, launcher=launcher)
    work = Work(runs, runs, {run.name: Price() for run in runs}, {})
    jobs = [context.job(run) for run in runs]
    for number in (1, 2):
        with injected(Faults()) as faults, suppress(Died):
            faults.on("SubmitJob", EVERY["died after"](), number)
            submitted(work, context, 1)
    in_queue = account.rules.batch.jobs
    next(iter(in_queue.values())).attempts[-1].task.exit_code = 0
    step(account.rules)

    ended = sweep(*submitted(work, context, 1), [Slot(())])

    assert Counter(one.request["jobName"] for one in in_queue.values()) == Counter(jobs)
    assert attached == jobs
    assert [run.state for run in ended] == ["done"] * 3
