"""The promise of launch.ec2: whatever fails at whatever call, nothing is left that cannot be found and removed.

For every call to AWS of a launch, of following it and taking it down, of a restart after a lost node, and of a stop,
and for each way in which it can go wrong: the same command again leads to exactly N nodes, and `stop` leaves none.
What is left is looked up in moto itself, not by the code under test.

EC2 shows new nodes one look late.  A call that only reads has no effect that could come before or after its failure,
and a launcher keeps nothing between calls: for reads one error stands for all failures, and its death at a read
leaves what its death after the last write left.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pytest

from tests.launch.copies import Copies
from tests.launch.ec2.account import Account
from tests.launch.ec2.world import Stage
from tests.launch.faults import EVERY, Died, Faults, Request, injected
from trainer.errors import TrainerError

NODES = 2
# Between the fault and the stop: a stop right after a launch looks longer, see test_start.py, and so would the sweep.
SOON_S = 300.0
READS = ("Describe", "Get", "List", "Head", "Filter")
FOR_READS = "error before"
Act = Callable[[Stage], object]

pytestmark = pytest.mark.timeout(600)  # of hundreds of cases each


def launched(stage: Stage) -> None:
    """A job whose nodes run, without anybody watching."""
    stage.where = {"detach": True}
    stage.launch()


def launched_and_lost_one(stage: Stage) -> None:
    launched(stage)
    stage.lose_node(1)()


def launched_and_ended(stage: Stage) -> None:
    launched(stage)
    stage.end_nodes()()


def nothing(stage: Stage) -> None:
    pass


def follow(stage: Stage) -> None:
    stage.where = {}
    stage.attach()


def stop(stage: Stage) -> None:
    stage.stop()


# What happened before; the command that is disturbed; whether it is one that brings N nodes about.
COMMANDS: dict[str, tuple[Act, Act, bool]] = {
    "launch": (nothing, launched, True),
    "restart": (launched_and_lost_one, launched, True),
    "follow and take down": (launched_and_ended, follow, False),
    "stop": (launched, stop, False),
}


@dataclass
class Watched(Faults):
    """at_each: told of every call before a fault is looked for."""

    at_each: Callable[[Request], None] = lambda _call: None

    def begin(self, call: Request, protocol: str) -> None:
        self.at_each(call)
        super().begin(call, protocol)


@contextmanager
def staged(before: Act) -> Iterator[tuple[Stage, Watched]]:
    with Account.opened() as account, injected(Watched()) as faults:
        account.slow.hidden = 1
        stage = Stage(account)
        before(stage)
        faults.clear()
        yield stage, faults


@functools.cache
def all_was_read_once() -> None:
    """Else each copy would read the models of the services that come after its fault."""
    with staged(launched) as (stage, _):
        stage.stop()


def what_is_wrong(stage: Stage, faults: Faults, kind: str, *, again: bool) -> str:
    """After a fault, and a stop; again: with the same launch in between.  Empty: nothing."""
    if all(call.operation.startswith(READS) for call in faults.calls) and "after" not in kind:
        return ""  # nothing was done, so what follows is as if nothing had been
    faults.clear()
    if again:
        launched(stage)
        if len(stage.account.nodes) != NODES:
            return f"{len(stage.account.nodes)} nodes instead of {NODES}"
    if stage.account.left():
        stage.slept_s += SOON_S
        stage.stop()
    return ", ".join(stage.account.left())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_fault_at_any_call_leaks_and_the_same_launch_again_converges(
    command: str, kind: str, record_property: Callable[[str, object], None]
) -> None:
    before, act, starts = COMMANDS[command]
    # After a launcher's death both ways to go on must work; after an error it has taken everything down itself.
    ways = ([True, False] if "died" in kind else [True]) if starts else [False]
    copies, again = Copies(), False

    def fail_in_a_copy(call: Request) -> None:
        nonlocal again
        number = len(faults.calls) + 1
        for again in [False] * (kind == FOR_READS) if call.operation.startswith(READS) else ways:
            if not copies.is_copy and copies.make(f"{number}. {call}" + ", again" * again):
                faults.at(number, EVERY[kind]())
                return

    all_was_read_once()
    with staged(before) as (stage, faults), copies.end_here():
        faults.at_each = fail_in_a_copy
        with suppress(TrainerError, Died):
            act(stage)
        if copies.is_copy:
            copies.report(what_is_wrong(stage, faults, kind, again=again))
        calls = len(faults.calls)
    wrong = {call: found for call, found in copies.reports.items() if found}
    record_property("crash sweep", (command, kind, calls, len(copies.reports), len(wrong)))
    assert copies.reports
    assert wrong == {}


def follow_a_loss(stage: Stage) -> None:
    """A job that is followed loses a node; once it has a new one, the training ends well."""

    def end_once_replaced() -> None:
        if stage.cluster["restarts"]:
            stage.end_nodes()()

    stage.where = {}
    stage.events = itertools.chain([stage.lose_node(1)], itertools.repeat(end_once_replaced))
    assert stage.attach() == 0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_no_error_at_any_call_while_a_node_is_replaced_ends_the_job(
    record_property: Callable[[str, object], None],
) -> None:
    copies, calls_after = Copies(), 0

    def fail_in_a_copy(call: Request) -> None:
        """From the second round of look-ups, the replacement's, until the nodes know each other again."""
        nonlocal calls_after
        if copies.is_copy or faults.count("GetCallerIdentity") + (call.operation == "GetCallerIdentity") < 2:
            return
        calls_after += faults.count("RunInstances") > 0
        if calls_after <= 10:
            number = len(faults.calls) + 1
            if copies.make(f"{number}. {call}"):
                faults.at(number, EVERY["error before"]())

    all_was_read_once()
    with staged(launched) as (stage, faults), copies.end_here():
        survivor = stage.cluster["nodes"][0]["instance"]
        faults.at_each = fail_in_a_copy
        follow_a_loss(stage)
        kept = survivor in [row["instance"] for row in stage.cluster["nodes"]]
        if copies.is_copy:
            copies.report(", ".join(stage.account.left()) if kept else "the survivor was replaced")
        calls = len(faults.calls)
        assert kept
    wrong = {call: found for call, found in copies.reports.items() if found}
    record_property("crash sweep", ("replacement", "error before", calls, len(copies.reports), len(wrong)))
    assert len(copies.reports) > 30
    assert wrong == {}
