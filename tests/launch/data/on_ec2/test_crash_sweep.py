"""The promise of launch.data publish --by instance: whatever fails at whatever call of the user's machine, nothing is
left that costs money once the same command, or `stop`, has been given again; and the same command comes to its end.

For every call of it and each way in which it can go wrong.  What is left is looked up in moto, not by the code under
test.  Instances, which have tests of their own, are done here in no time.
"""

from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.launch.copies import Copies
from tests.launch.data.on_ec2.desk import NAME, Ec2Desk, opened
from tests.launch.faults import EVERY, Died, Faults, Request, injected
from trainer.errors import TrainerError

READS = ("Describe", "Get", "List", "Head")

pytestmark = pytest.mark.timeout(400)  # of many cases each


def warm_up() -> None:
    """A whole run in an account of its own: every copy would make clients and moto's tables anew, which takes longer
    than all that it does with them.
    """
    with TemporaryDirectory() as folder, opened(Path(folder)) as desk:
        desk.node = Ec2Desk.pretend_on
        assert desk.publish_s3() == 0, desk.text


def what_is_there(desk: Ec2Desk, code: int | None) -> str:
    """All on which the commands after a fault depend: what was written, in order, and what EC2 still hides.

    The rest of the account follows from it, but for names that hold a time: faults that leave the same have one second
    command between them.
    """
    calls = [call for call in desk.account.requests if not call.operation.startswith(READS)]
    written = [f"{call.operation} {call.params.get('Key', '')}" for call in calls]
    machines = [instance.state for instance in desk.account.ec2.all_instances()]
    return f"{code} {written} {machines} {sorted(desk.account.rules.fresh.values())} {desk.ran}"


def what_is_wrong(desk: Ec2Desk, faults: Faults, then: str) -> str:
    """After a fault: nothing, the same command again, or a stop.  Empty: nothing."""
    faults.clear()
    if then == "stop" and (code := desk.type("stop", NAME)) != 0:
        return f"stop ended with {code}: {desk.text}"
    if then == "publish":
        if (code := desk.publish_s3()) != 0:
            return f"the second run ended with {code}: {desk.text}"
        if desk.record["state"] != "published":
            return f"the record says {desk.record}"
    return ", ".join(desk.billed())


@pytest.mark.slow("no fault at any call leaves an instance of launch.data publish, or keeps it from its end")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(
    ("kind", "then"), [("answer lost", "stop"), ("answer lost once", "nothing"), ("died after", "publish")]
)
def test_no_fault_at_any_call_leaves_an_instance(kind: str, then: str) -> None:
    copies, last = Copies(), ""
    warm_up()

    def fail_in_a_copy(call: Request) -> None:
        """Reads in a row are one case: none has an effect that could come before its failure."""
        nonlocal last
        is_repeated, last = last == call.operation, call.operation
        if call.operation.startswith(READS) and (is_repeated or then == "nothing"):
            return  # botocore simply makes a read again
        if copies.make(f"{len(faults.calls) + 1}. {call}"):
            faults.at(len(faults.calls) + 1, EVERY[kind]())

    class Watched(Faults):
        def begin(self, call: Request, protocol: str) -> None:
            if not copies.is_copy:
                fail_in_a_copy(call)
            super().begin(call, protocol)

    with TemporaryDirectory() as folder, opened(Path(folder)) as desk, injected(Watched()) as faults, copies.end_here():
        desk.account.slow.unknown = 1  # new instances and groups are not known at once
        desk.node = Ec2Desk.pretend_on
        # EC2's buckets of tokens fill while the publisher sleeps and while botocore waits.
        desk.account.rules.access.throttling.now = lambda: desk.clock.now() + faults.waited_s
        code: int | None = None
        with suppress(TrainerError, Died):
            code = desk.publish_s3(*(("--replace",) if then == "stop" else ()))
        if copies.is_copy:
            there = what_is_there(desk, code)
            assert then != "nothing" or code == 0, desk.text
            copies.report_on(there, partial(what_is_wrong, desk, faults, then))
        assert code == 0, desk.text
    wrong = {call: found for call, found in copies.reports.items() if found}
    # Every call, of which some twenty leave something different; for what botocore repeats, those that write.
    assert len(copies.reports) > (12 if then == "nothing" else 50)
    assert wrong == {}
