"""The promise of launch.sagemaker: whatever fails at whatever call, at most one training job of ours lives.

For every call to AWS of a launch, a stop, and leaks --delete, and for each way in which it can go wrong: the same
command again does what it should, and `stop` leaves nothing.  What is left is looked up in moto itself.

A call that only reads has no effect that could come before or after its failure: for reads one error stands for all.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from launch.rehearse.aws.sagemaker.changes import complete
from tests.launch.faults import EVERY, TOLD_APART, Died, Faults, Request, injected
from tests.launch.sagemaker.known import NAME
from tests.launch.sagemaker.world import Stage
from trainer.errors import TrainerError

READS = ("Describe", "Get", "List", "Head", "Filter")
FOR_READS = "error before"
# Of how a call can fail, what `make test` tries; `make test-all` tries the others, too.
QUICK = [("launch", "answer lost once"), ("launch", "died after"), ("stop", "died after"), ("stop", FOR_READS),
         ("leaks", "answer lost once")]  # fmt: skip
DAY_S = 86_400
Act = Callable[[Stage], object]


def nothing(stage: Stage) -> None:
    pass


def launch(stage: Stage) -> None:
    stage.settings = {"detach": True}
    stage.launch()


def one_runs(stage: Stage) -> None:
    stage.started()


def one_runs_and_one_was_kept(stage: Stage) -> None:
    complete(stage.started(warm_pool_s=600))
    stage.started(nodes=2)


def one_is_late_and_one_was_kept(stage: Stage) -> None:
    stage.started("late")
    complete(stage.started("kept", nodes=2, warm_pool_s=600))
    stage.slept_s += 2 * DAY_S


def stop(stage: Stage) -> None:
    stage.type("stop", NAME)


def stop_all(stage: Stage) -> None:
    stage.type("stop", "--all", "--yes")


def delete_leaks(stage: Stage) -> None:
    stage.type("leaks", "--delete", "--yes")


# The state before; the command that is disturbed; what is left once it has been repeated.
COMMANDS: dict[str, tuple[Act, Act, list[str]]] = {
    "launch": (nothing, launch, [f"training job {NAME} (InProgress)"]),
    "relaunch": (one_runs, launch, [f"training job {NAME} (InProgress)"]),
    "stop": (one_runs_and_one_was_kept, stop, []),
    "leaks": (one_is_late_and_one_was_kept, delete_leaks, []),
}


@contextmanager
def staged(before: Act) -> Iterator[tuple[Stage, Faults]]:
    with Stage.opened() as stage, injected(Faults()) as faults:
        before(stage)
        faults.clear()
        yield stage, faults


def calls_of(before: Act, act: Act) -> list[Request]:
    with staged(before) as (stage, faults):
        act(stage)
        return list(faults.calls)


def after_a_fault(command: str, number: int, kind: str) -> str:
    """What is wrong after the fault, after the same command again, and after a stop.  Empty: nothing."""
    before, act, left = COMMANDS[command]
    with staged(before) as (stage, faults):
        faults.at(number, EVERY[kind]())
        with suppress(TrainerError, Died):
            act(stage)
        alive = [job for job in stage.account.left() if job.startswith("training job")]
        if len(alive) > 1:
            return f"after the fault: {alive}"
        faults.clear()
        act(stage)
        if stage.account.left() != left:
            return f"done again: {stage.account.left()}"
        stop_all(stage)
        return ", ".join(stage.account.left())


SLOW = pytest.mark.slow("no lost answer or error leads to a second SageMaker job, or leaves one")


# A launch while the job runs only reads.
@pytest.mark.parametrize(
    ("command", "kind"),
    [
        pytest.param(command, kind, marks=() if (command, kind) in QUICK else SLOW)
        for command in COMMANDS
        for kind in TOLD_APART
        if kind == FOR_READS or command != "relaunch"
    ],
)
def test_no_fault_at_any_call_leads_to_a_second_job_or_leaves_one(
    command: str, kind: str, record_property: Callable[[str, object], None]
) -> None:
    before, act, _ = COMMANDS[command]
    calls = calls_of(before, act)
    cases = [
        number for number, call in enumerate(calls, 1) if kind == FOR_READS or not call.operation.startswith(READS)
    ]
    wrong = {
        f"{number}. {calls[number - 1]}": found for number in cases if (found := after_a_fault(command, number, kind))
    }
    record_property("crash sweep", (f"sagemaker {command}", kind, len(calls), len(cases), len(wrong)))
    assert cases
    assert wrong == {}
