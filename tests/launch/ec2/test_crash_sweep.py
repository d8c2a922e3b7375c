"""The promise of launch.ec2: whatever fails at whatever call, nothing is left that cannot be found and removed.

For every call to AWS of a launch, of following it and taking it down, of a restart after a lost node, and of a stop,
and for each way in which it can go wrong: the same command again leads to exactly N nodes, and `stop` leaves none.
What is left is looked up in moto itself, not by the code under test.

The launcher has the policies of infra/iam and nothing else, and the embedded AWS is as strict as it gets: EC2 shows new
nodes one look late, and does not know what was just made when it is first named.

Each distinct case is tried once:

- A call that only reads has no effect that could come before or after its failure: one error stands for all failures.
  So it does for all reads in a row that one place in the launcher asks for, such as the six of a look at a job.
- An error after the effect is what a lost answer is: the launcher cannot know whether the call took effect.
- A launcher keeps nothing between calls.  Its death before a call leaves what its death after the last write left.
- Where the same launch again leads to what an undisturbed one makes, so does a stop of it.
- A launch with one volume for all nodes is the same as one without until it makes the volume.
- Faults that leave the same, as most do after which a launch has taken everything down, have one command after them.
"""

import functools
import itertools
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

import pytest
from moto.scheduler.models import scheduler_backends

from launch.aws.instances.requests import GRACE
from launch.aws.names import ALLOWED_TAG, DEADLINE_TAG, JOB_TAG, SWEEPER_DOCUMENT, read_time
from launch.rehearse.aws.ec2.scheduler import due_at, is_enabled
from tests.launch.copies import Copies
from tests.launch.ec2.account import Account
from tests.launch.ec2.known import NAME
from tests.launch.ec2.world import Stage
from tests.launch.faults import EVERY, Died, Faults, Request, injected
from trainer.errors import TrainerError

NODES = 2
# Between the fault and the stop: a stop right after a launch looks longer, see test_start.py, and so would the sweep.
SOON_S = 300.0
RETRY_DELAY_S = 10.0  # from the fault to the same launch again, which starts and looks things up first
READS = ("Describe", "Get", "List", "Head", "Filter")
FOR_READS = "error before"
ASKED_AGAIN = "answer lost once"  # by botocore; AWS has done it already, and the command goes on
# Of how a call can fail, what `make test` tries, and what it leaves to `make test-all`.
KINDS = ["answer lost once", "died after", "error before"]
OTHER_KIND = "answer lost"
# Where a command begins to differ from one that is tried from its first call.
FROM = {"one volume": "CreateVolume"}
ASKING = {"launch.aws.instances.facts", "launch.aws.instances.inventory"}  # on behalf of the others
Act = Callable[[Stage], object]
Options = Callable[[Account], dict[str, object]]
Place = tuple[str, int]
Kinds = Counter[tuple[str, bool]]
KEY = "testing"  # which conftest.py signs with

pytestmark = pytest.mark.timeout(600)  # of hundreds of cases each


def reserved(account: Account) -> str:
    """A reservation that launchers may use."""
    name = account.reserve("us-east-1b", "g5.2xlarge", NODES)
    account.ec2.create_tags([name], {ALLOWED_TAG: "yes"})
    return name


def launched(stage: Stage) -> None:
    """A job whose nodes run, without anybody watching."""
    stage.where = {"detach": True}
    stage.launch()


def launched_with_one_volume(stage: Stage) -> None:
    """The data volume is made after the nodes, and attached to them."""
    stage.where = {"detach": True, "data_volume": "multi-attach"}
    stage.launch()


def launched_and_lost_one(stage: Stage) -> None:
    launched(stage)
    stage.lose_node(1)()
    while "capacity_reservation" in stage.always and any(node.state == "shutting-down" for node in stage.account.nodes):
        stage.aws.call("ec2", "DescribeInstances")  # until then its place in the reservation is taken


def launched_and_warm(stage: Stage) -> None:
    """Nodes of another job wait for this one, and need no boot."""
    stage.leave_warm()


def launched_and_waiting(stage: Stage) -> None:
    """Its nodes have trained and wait for a next job; its launcher is gone."""
    stage.where = {"detach": True, "keep_warm": 30}
    stage.launch()
    stage.stay_warm()()


def leave_warm(stage: Stage) -> None:
    stage.where = {"keep_warm": 30}
    stage.attach()


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
    "one volume": (nothing, launched_with_one_volume, True),
    "restart": (launched_and_lost_one, launched, True),
    "on warm nodes": (launched_and_warm, launched, True),
    "follow and take down": (launched_and_ended, follow, False),
    "leave warm": (launched_and_waiting, leave_warm, False),
    "stop": (launched, stop, False),
}


@dataclass
class Watched(Faults):
    """at_each: called with every call that differs from the one before it, before a fault is looked up."""

    at_each: Callable[[Request], None] = lambda _call: None
    _place: Place | None = None

    def begin(self, call: Request, protocol: str) -> None:
        place = place_of_call() if reads(call) else None
        if place is None or place != self._place:
            self._place = place
            self.at_each(call)
        super().begin(call, protocol)


def reads(call: Request) -> bool:
    return call.operation.startswith(READS)


def place_of_call() -> Place | None:
    """The module and line of the launcher that makes the current call."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(("launch.ec2.", "launch.aws.instances.")) and module not in ASKING:
            return module, frame.f_lineno
        frame = frame.f_back
    return None


@contextmanager
def staged(before: Act, options: Options = lambda _account: {}) -> Iterator[tuple[Stage, Watched]]:
    with Account.opened() as account, injected(Watched()) as faults:
        account.slow.hidden = account.slow.unknown = 1
        launcher = account.rules.access.add(KEY, f"arn:aws:iam::{account.id}:user/launcher", "launcher")
        stage = Stage(account, always=options(account))
        # EC2's buckets of tokens fill while the launcher sleeps and while botocore waits.
        account.rules.access.throttling.now = lambda: stage.clock().now() + faults.waited_s
        before(stage)
        faults.clear()
        yield stage, faults
        assert launcher.refused == []


@functools.cache
def all_was_read_once() -> None:
    """Else each copy would read the models of the services that come after its fault."""
    with staged(launched) as (stage, _):
        stage.stop()


def kinds_of(account: Account) -> Kinds:
    """How many resources of each kind there are, by whether they carry the job's tag, or its name."""
    tags, kinds = account.ec2.tags, Kinds()
    for resource in account.left():
        kind, _, name = resource.rpartition(" ")
        kinds[kind, NAME in name or tags.get(name, {}).get(JOB_TAG) == NAME] += 1
    return kinds


def whole(before: Act, act: Act, options: Options) -> Kinds:
    """What an undisturbed launch makes.  A stop leaves nothing of it."""
    with staged(before, options) as (stage, _):
        act(stage)
        made = kinds_of(stage.account)
        stage.slept_s += SOON_S
        stage.stop()
        assert stage.account.left() == []
    return made


def outlasting(account: Account) -> list[str]:
    """Nodes and shared volumes that nobody would end if no launcher ever came back.

    Nodes: the job's schedule and the sweeper, both by the deadline in their tags; volumes: the sweeper.
    """
    limits = [one for group in scheduler_backends[account.id][account.region].schedule_groups.values()
              for one in group.schedules.values() if is_enabled(one) and _is_time_limit(one)]  # fmt: skip
    found = []
    for node in account.nodes:
        tags = account.ec2.tags.get(node.id, {})
        last = read_time(tags.get(DEADLINE_TAG))
        in_time = last and any(last.timestamp() < due_at(one) <= (last + GRACE).timestamp() for one in limits)
        if node.state in ("pending", "running") and not (in_time and JOB_TAG in tags):
            found.append(f"{node.id} would run on")
    shared = [volume for volume in account.ec2.volumes.values() if JOB_TAG in account.ec2.tags.get(volume.id, {})]
    return found + [f"{one.id} would stay" for one in shared if DEADLINE_TAG not in account.ec2.tags[one.id]]


def _is_time_limit(schedule: Any) -> bool:
    """Whether it ends, when it is due, the nodes past the deadline in their tags."""
    asked = json.loads(schedule.target["Input"])
    return bool(asked == {"DocumentName": SWEEPER_DOCUMENT, "Parameters": {"GraceMinutes": ["0"]}})


def what_is_there(stage: Stage, kind: str, again: bool) -> str:
    """All on which the commands after a fault depend: what was written, in order, what stands, what EC2 still hides."""
    account = stage.account
    calls = [call for call in account.requests if not reads(call)]
    written = [f"{call.operation} {call.params.get('Key', '')}" for call in calls]
    once = [text for before, text in itertools.pairwise(["", *written]) if text != before]  # asked again by botocore
    machines = [instance.state for instance in account.ec2.all_instances()]
    kinds = sorted(kinds_of(account).items())
    hidden = sorted(account.rules.fresh.values())
    return f"{kind == FOR_READS} {again} {once} {kinds} {machines} {account.s3_keys()} {hidden}"


def what_is_wrong(stage: Stage, faults: Faults, made: Kinds | None) -> str:
    """After a fault and a stop.  Empty: nothing.

    made: by the same launch in between, or None for no launch.
    """
    faults.clear()
    if made is not None:
        stage.slept_s += RETRY_DELAY_S
        stage.launch()
        tags = stage.account.ec2.tags  # warm nodes of another job may be left, which end by themselves
        nodes = sum(tags[node.id][JOB_TAG] == NAME for node in stage.account.nodes)
        if nodes != NODES:
            return f"{nodes} nodes instead of {NODES}"
        if kinds_of(stage.account) == made:
            return ""
    if stage.account.left():
        stage.slept_s += SOON_S
        stage.stop()
    return ", ".join(stage.account.left())


Row = tuple[str, int, int, int]
SLOW = pytest.mark.slow("no lost answer leaks, and no fault of a restart, of a shared volume or with warm nodes")
QUICK = ("launch", "follow and take down", "stop")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(
    ("command", "kinds"),
    [
        *((command, KINDS) for command in QUICK),
        pytest.param("launch", [OTHER_KIND], marks=SLOW),
        pytest.param("restart", KINDS, marks=SLOW),
        pytest.param("one volume", KINDS, marks=SLOW),
        pytest.param("on warm nodes", ["error before", "died after"], marks=SLOW),
        pytest.param("leave warm", KINDS, marks=SLOW),
    ],
    ids=lambda value: value if isinstance(value, str) else ", ".join(value),
)
def test_no_fault_at_any_call_leaks_and_the_same_launch_again_converges(
    command: str, kinds: list[str], record_property: Callable[[str, object], None]
) -> None:
    for row in sweep(command, kinds):
        record_property("crash sweep", (command, *row))


@pytest.mark.slow("no death at any call of a restart in a reservation leaks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_no_death_at_any_call_leaks_in_a_reservation(record_property: Callable[[str, object], None]) -> None:
    """A restart asks for its nodes as a launch does, but must wait for its place."""
    for row in sweep("restart", ["died after"], lambda account: {"capacity_reservation": reserved(account)}):
        record_property("crash sweep", ("restart, reservation", *row))


def sweep(command: str, kinds: list[str], options: Options = lambda _account: {}) -> list[Row]:
    """A copy of the command for each call and each way in which it can be disturbed there.

    For each kind, what was found: its name, and how many calls, cases and leaks there are.
    """
    before, act, starts = COMMANDS[command]
    copies, kind, again = Copies(), "", False

    def fail_in_a_copy(call: Request) -> None:
        nonlocal kind, again
        number = len(faults.calls) + 1
        too_early = command in FROM and not faults.count(FROM[command]) and call.operation != FROM[command]
        if copies.is_copy or too_early:
            return
        for kind, again in ways_to_fail(call, kinds, starts):
            if copies.make(f"{kind}: {number}. {call}" + ", again" * again):
                faults.at(number, EVERY[kind]())
                return

    all_was_read_once()
    made = whole(before, act, options) if starts else None
    with staged(before, options) as (stage, faults), copies.end_here():
        faults.at_each = fail_in_a_copy
        error = what_ended(act, stage, copies)
        if copies.is_copy:
            if error and kind == ASKED_AGAIN:
                copies.report(f"it has ended the command: {error}")
            if all(map(reads, faults.calls)) and "after" not in kind:
                copies.report("")  # nothing was done, so what follows is as if nothing had been
            if found := outlasting(stage.account):
                copies.report(", ".join(found))
            looking = partial(what_is_wrong, stage, faults, made if again else None)
            copies.report_on(what_is_there(stage, kind, again), looking)
        calls = len(faults.calls)
    wrong = {case: found for case, found in copies.reports.items() if found}
    cases, leaks = Counter(map(kind_of, copies.reports)), Counter(map(kind_of, wrong))
    assert sorted(cases) == sorted(kinds)
    assert wrong == {}
    return [(kind, calls, cases[kind], leaks[kind]) for kind in kinds]


def what_ended(act: Act, stage: Stage, copies: Copies) -> TrainerError | Died | None:
    """The error with which a command ended in a copy.  Raises it in the original, in which nothing fails on purpose."""
    try:
        act(stage)
    except (TrainerError, Died) as error:
        if not copies.is_copy:
            raise
        return error
    return None


def ways_to_fail(call: Request, kinds: list[str], starts: bool) -> Iterator[tuple[str, bool]]:
    """Which faults of a call are distinct, and whether the same launch comes after it.

    After a launcher's death both ways to go on must work; after an error it has taken everything down itself.
    """
    for kind in kinds:
        if reads(call) and kind != FOR_READS:
            continue
        if starts:
            yield kind, True
        if not starts or "died" in kind:
            yield kind, False


def kind_of(case: str) -> str:
    return case.partition(":")[0]


def follow_a_loss(stage: Stage) -> None:
    """A job that is followed loses a node; once it has a new one, the training ends well."""

    def end_once_replaced() -> None:
        if stage.cluster["restarts"]:
            stage.end_nodes()()

    stage.where = {}
    stage.events = itertools.chain([stage.lose_node(1)], itertools.repeat(end_once_replaced))
    assert stage.attach() == 0


@pytest.mark.slow("no error at any call while a node is replaced ends the job")
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
