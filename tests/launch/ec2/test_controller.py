"""The launcher that a queue runs: whatever call it dies at, its successor goes on, and no healthy job is ended.

A death at each call that differs from the one before, as in test_crash_sweep.py: of the first launcher of a
job, and of one that comes when the nodes run.  Deaths that leave the same have one successor.
"""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from launch.aws.names import Folder
from launch.ec2.batch import put_into_queue
from launch.ec2.controller import lead
from launch.ec2.regions import plan_regions
from launch.rehearse.accounts import vcpus
from launch.rehearse.aws.batch.container_operations import make_fargate_queue
from launch.rehearse.aws.batch.jobs import ACTIVE
from launch.rehearse.aws.batch.scheduler import HeldTask, step
from tests.launch.copies import Copies
from tests.launch.ec2.account import Account
from tests.launch.ec2.known import NAME
from tests.launch.ec2.known import job as job_called
from tests.launch.ec2.test_crash_sweep import NODES, Watched, reads, what_is_there
from tests.launch.ec2.world import Stage
from tests.launch.faults import EVERY, Died, Request, injected
from trainer.contract import Exit

LOOKS = 8  # at the job, between which its nodes train
pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]


class Queued:
    """A job in a queue, whose launchers run in this process; its nodes end by themselves after some looks at them."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.account = stage, stage.account
        self.trained = 0  # looks
        self.wrong: list[str] = []
        make_fargate_queue(self.account.rules, "demo", self.account.region, self.account.id, vcpus(self.account))
        stage.events = iter(itertools.repeat(self._tick))
        put_into_queue(plan_regions(job_called(queue="demo"), stage.runtime()), stage.runtime())

    def _tick(self) -> None:
        """At each sleep of a launcher."""
        if self.account.s3(f"jobs/{NAME}/cluster.json") is None:
            return
        self.trained += 1
        if self.trained == LOOKS:
            states = [self.account.ec2.get_instance(row["instance"]).state for row in self.stage.cluster["nodes"]]
            if states != ["running"] * NODES:
                self.wrong.append(f"nodes that trained are {states}")
            self.stage.end_nodes()()

    def lead(self) -> int:
        """Runs the next launcher until it ends; returns its exit code."""
        return lead(Folder(self.account.bucket, NAME), self.account.region, self.stage.runtime())

    def end_batch_job(self, code: int) -> None:
        step(self.account.rules)
        for job in self.account.rules.batch.jobs.values():
            assert isinstance(job.attempts[-1].task, HeldTask)
            job.attempts[-1].task.exit_code = code
        step(self.account.rules)

    def what_is_wrong(self) -> str:
        """After the last launcher: empty if the job is done and has left nothing."""
        code = self.lead()
        self.end_batch_job(code)
        outcome, started = self.stage.outcome, len(self.account.ec2.all_instances())
        found = [*self.wrong, *self.account.left()]
        found += [f"exit code {code}: {self.stage.said[-3:]}"] * (code != Exit.DONE)
        found += [f"outcome {outcome}"] * (outcome is None or outcome.state != "done")
        found += [f"{started} nodes were started"] * (started != NODES)
        return ", ".join(found)


@contextmanager
def queued() -> Iterator[tuple[Queued, Watched]]:
    with Account.opened() as account, injected(Watched()) as faults:
        job = Queued(Stage(account))
        faults.clear()
        yield job, faults


def test_a_queued_job_is_led_to_its_end(stage: Stage) -> None:
    assert Queued(stage).what_is_wrong() == ""


def test_nodes_that_end_while_no_launcher_leads_are_not_started_again(stage: Stage) -> None:
    job = Queued(stage)
    stage.events = iter([*[lambda: None] * LOOKS, _dies])
    with pytest.raises(Died):
        job.lead()
    stage.end_nodes()()

    assert job.what_is_wrong() == ""


def test_jobs_over_the_vcpus_of_four_machines_are_never_above_the_limit(stage: Stage) -> None:
    """Three jobs of two g5.2xlarge and three of one, submitted as the command does it, one of them twice."""
    account = stage.account
    make_fargate_queue(account.rules, "demo", account.region, account.id, {"graphics": 32})
    for number, nodes in enumerate((2, 1, 2, 1, 2, 1)):
        for _ in range(1 + (number == 5)):
            job = job_called(queue="demo", job_name=f"job-{number}", nodes=nodes)
            put_into_queue(plan_regions(job, stage.runtime()), stage.runtime())
    jobs, most = list(account.rules.batch.jobs.values()), 0
    assert [sum(one.consumes.values()) for one in jobs] == [16, 8, 16, 8, 16, 8]
    while running := [one for one in jobs if one.status in ACTIVE]:
        most = max(most, sum(sum(one.consumes.values()) for one in running))
        running[0].attempts[-1].task.exit_code = 0
        step(account.rules)

    assert most <= 32
    assert {one.status for one in jobs} == {"SUCCEEDED"}


def _dies() -> None:
    raise Died


@pytest.mark.slow("a launcher in a queue may die at any call to AWS: nothing leaks, and no healthy job ends")
@pytest.mark.parametrize(
    "begin", [lambda job: None, lambda job: _lead_until_nodes_run(job)], ids=["first", "successor"]
)
def test_a_death_at_any_call_leaks_nothing_and_ends_no_healthy_job(
    begin: Callable[[Queued], None], record_property: Callable[[str, object], None]
) -> None:
    copies, here = Copies(), threading.get_ident()

    def die_in_a_copy(call: Request) -> None:
        if threading.get_ident() != here:
            return  # planning reads in threads, of which a copy would have one: a death there leaves what was there
        number = len(faults.calls) + 1
        if not copies.is_copy and copies.make(f"{number}. {call}"):
            faults.at(number, EVERY["died before" if reads(call) else "died after"]())

    with queued() as (job, faults), copies.end_here():
        begin(job)
        faults.clear()
        faults.at_each = die_in_a_copy
        try:
            job.lead()
        except Died:
            faults.clear()
            job.stage.slept_s += 10.0
            copies.report_on(what_is_there(job.stage, "died", again=True), job.what_is_wrong)
        if copies.is_copy:
            copies.report("the launcher went on")
    wrong = {case: found for case, found in copies.reports.items() if found}
    record_property("crash sweep", ("controller", "died", len(faults.calls), len(copies.reports), len(wrong)))
    assert copies.reports
    assert wrong == {}


def _lead_until_nodes_run(job: Queued) -> None:
    job.stage.events = iter([*[lambda: None] * 3, _dies])
    with pytest.raises(Died):
        job.lead()
    job.stage.events = iter(itertools.repeat(job._tick))
    job.stage.slept_s += 200.0
