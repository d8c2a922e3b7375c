"""The promise of launch.data publish: whatever fails at whatever call, the same command brings it to its end, nothing
is left that is not this data set's, and `delete` leaves nothing at all.

For every call to AWS and each way in which it can go wrong: of one that only reads, a lost answer is the same as an
error.  What is left is looked up in moto, not by the code under test.  The publisher has infra/iam/data.json and
nothing else, and the embedded AWS is as strict as it gets.
"""

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from launch.rehearse.aws.iam.callers import Caller
from tests.launch.copies import Copies
from tests.launch.data.desk import Desk, opened
from tests.launch.faults import EVERY, Died, Faults, Request, injected
from trainer.errors import TrainerError

KEY = "testing"  # which conftest.py signs with
READS = ("Describe", "Get", "List", "Head")

pytestmark = pytest.mark.timeout(300)  # of many cases each


def strict(desk: Desk) -> Caller:
    """New snapshots are not known at once, and the caller has one policy."""
    desk.account.slow.unknown = 1
    access = desk.account.rules.access
    return access.add(KEY, f"arn:aws:iam::{desk.account.id}:user/data", "data")


def warm_up() -> None:
    """A whole life in an account of its own: every copy would make clients and moto's tables anew."""
    with TemporaryDirectory() as folder, opened(Path(folder) / "home") as desk:
        assert desk.publish() == 0, desk.text
        assert desk.type("delete", "photos", "--yes") == 0, desk.text


def what_is_wrong(desk: Desk, faults: Faults) -> str:
    """After a fault: the same command again, and a delete.  Empty: nothing."""
    faults.clear()
    if (code := desk.publish()) != 0:
        return f"the second run ended with {code}: {desk.text}"
    ready = [one for one in desk.snapshots() if one.status == "completed"]
    if [one.id for one in ready] != [desk.record["snapshot"]] or len(desk.snapshots()) != 1:
        return f"snapshots {[(one.id, one.status) for one in desk.snapshots()]}, and the record says {desk.record}"
    if desk.record["state"] != "published" or "manifest.json" not in desk.s3():
        return f"in S3: {sorted(desk.s3())}"
    if any(Path(desk.folder.parent, "photos-publishing").glob("*")):
        return "the work folder is still there"
    if (code := desk.type("delete", "photos", "--yes")) != 0:
        return f"delete ended with {code}: {desk.text}"
    return ", ".join([*desk.account.left(), *desk.s3()])


@pytest.mark.slow("no fault at any call keeps launch.data publish from its end, or leaks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("kind", ["error before", "died after"])
def test_no_fault_at_any_call_keeps_the_same_command_from_its_end(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copies, last = Copies(), ""
    warm_up()

    def fail_in_a_copy(call: Request) -> None:
        """Reads in a row are one case: none has an effect that could come before its failure."""
        nonlocal last
        is_repeated, last = last == call.operation, call.operation
        if call.operation.startswith(READS) and is_repeated:
            return
        kept = desk.folder.parent.with_suffix(".kept")
        subprocess.run(["cp", "-a", "--sparse=always", desk.folder.parent, kept], check=True)
        if copies.make(f"{len(faults.calls) + 1}. {call}"):
            faults.at(len(faults.calls) + 1, EVERY[kind]())
            return
        shutil.rmtree(desk.folder.parent)  # the copy of this process has worked in it
        kept.rename(desk.folder.parent)

    class Watched(Faults):
        def begin(self, call: Request, protocol: str) -> None:
            if not copies.is_copy:
                fail_in_a_copy(call)
            super().begin(call, protocol)

    with (
        TemporaryDirectory() as folder,
        opened(Path(folder) / "home") as desk,
        injected(Watched()) as faults,
        copies.end_here(),
    ):
        caller = strict(desk)
        desk.account.rules.access.throttling.now = lambda: desk.clock.now() + faults.waited_s
        code: int | None = None
        with suppress(TrainerError, Died):
            code = desk.publish()
        if copies.is_copy:
            copies.report(what_is_wrong(desk, faults))
        assert code == 0, desk.text
        assert caller.refused == []
    wrong = {call: found for call, found in copies.reports.items() if found}
    assert len(copies.reports) > 20
    assert wrong == {}
