"""The promise of launch.data publish --by instance: whatever fails at whatever call of the user's machine, nothing is
left that costs money once the same command, or `stop`, has been given again; and the same command comes to its end.

For every call of it and each way in which it can go wrong.  What is left is looked up in moto, not by the code under
test.  Instances, which have tests of their own, are done here in no time.
"""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.launch.copies import Copies
from tests.launch.data.near.desk import NAME, NearDesk, opened
from tests.launch.faults import EVERY, Died, Faults, Request, injected
from trainer.errors import TrainerError

READS = ("Describe", "Get", "List", "Head")

pytestmark = pytest.mark.timeout(400)  # of many cases each


def what_is_wrong(desk: NearDesk, faults: Faults, then: str) -> str:
    """After a fault: the same command again, or a stop and the same command.  Empty: nothing."""
    faults.clear()
    if then == "stop":
        if (code := desk.type("stop", NAME)) != 0:
            return f"stop ended with {code}: {desk.text}"
        if left := desk.billed():
            return f"stop leaves {left}"
    again = ("--replace",) if then == "stop" else ()  # the instance may have published it before that
    if (code := desk.near(*again)) != 0:
        return f"the second run ended with {code}: {desk.text}"
    if desk.record["state"] != "published":
        return f"the record says {desk.record}"
    return ", ".join(desk.billed())


@pytest.mark.slow("no fault at any call leaves an instance of launch.data publish, or keeps it from its end")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(("kind", "then"), [("answer lost", "stop"), ("died after", "publish")])
def test_no_fault_at_any_call_leaves_an_instance(kind: str, then: str) -> None:
    copies, last = Copies(), ""

    def fail_in_a_copy(call: Request) -> None:
        """Reads in a row are one case: none has an effect that could come before its failure."""
        nonlocal last
        is_new = not call.operation.startswith(READS) or last != call.operation
        last = call.operation
        if is_new and copies.make(f"{len(faults.calls) + 1}. {call}"):
            faults.at(len(faults.calls) + 1, EVERY[kind]())

    class Watched(Faults):
        def begin(self, call: Request, protocol: str) -> None:
            if not copies.is_copy:
                fail_in_a_copy(call)
            super().begin(call, protocol)

    with TemporaryDirectory() as folder, opened(Path(folder)) as desk, injected(Watched()) as faults, copies.end_here():
        desk.account.slow.unknown = 1  # new instances and groups are not known at once
        desk.node = NearDesk.pretend_on
        code: int | None = None
        with suppress(TrainerError, Died):
            code = desk.near(*(("--replace",) if then == "stop" else ()))
        if copies.is_copy:
            copies.report(what_is_wrong(desk, faults, then))
        assert code == 0, desk.text
    wrong = {call: found for call, found in copies.reports.items() if found}
    assert len(copies.reports) > 25
    assert wrong == {}
