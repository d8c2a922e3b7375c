"""What others may write into the shared bucket, or make in the account, takes no more time and memory than what is
honest.
"""

import ast
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from launch.core.errors import AwsError
from launch.core.instance.limits import time_limit
from launch.core.names import SCHEDULER_ROLE, Folder
from launch.ec2.boot import marks
from launch.ec2.finding import find
from launch.ec2.folders import jobs_in
from launch.ec2.watch import exit_records
from tests.conftest import ROOT
from tests.launch.ec2.account import Account

# A data set is read and listed whole, by whoever publishes it: only publishers may write there.
WHOLE = ("launch/data/", "launch/rehearse/")
RECORD = {"instance": "i-1", "step": "train", "reason": "", "at": 1, "code": 0, "rank": 0, "restarts": 0}


def _calls() -> Iterator[tuple[Path, ast.Call, list[str]]]:
    """Every call in the launchers with texts among its arguments, and these."""
    for path in sorted((ROOT / "launch").rglob("*.py")):
        if not str(path.relative_to(ROOT)).startswith(WHOLE):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call):
                    yield path, node, [str(one.value) for one in node.args if isinstance(one, ast.Constant)]


def test_every_listing_of_the_bucket_ends() -> None:
    """Millions of names cost whoever writes them a few dollars, and whoever lists them hours and gigabytes."""
    listings = [call for _, call, texts in _calls() if "ListObjectsV2" in texts and ".pages(" in ast.unparse(call)]
    assert len(listings) >= 5
    assert [ast.unparse(one) for one in listings if not any(word.arg == "most" for word in one.keywords)] == []


def test_every_listing_of_time_limits_ends() -> None:
    """Millions of them cost whoever makes them nothing; of 10,000 a status took 20 s, and that grows by the square."""
    listings = [call for _, call, texts in _calls() if "ListSchedules" in texts]
    assert len(listings) == 1
    assert [ast.unparse(one) for one in listings if not any(word.arg == "most" for word in one.keywords)] == []


def test_of_any_number_of_time_limits_only_the_first_are_listed(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launcher may make any, also under names that begin as a job's does."""
    aws = account.aws()
    role = aws.call("iam", "GetRole", {"RoleName": SCHEDULER_ROLE})["Role"]["Arn"]
    for number in range(5):
        for request in time_limit(f"aws-ddp-toolkit-j-{number}", datetime(2100, 1, 1, tzinfo=UTC), role, exists=False):
            with suppress(AwsError):  # the group is there after the first
                aws.call(request.service, request.operation, request.params)
    assert len(find(aws).kind("schedule")) == 5

    monkeypatch.setattr("launch.ec2.finding.MOST_LIMITS", 3)

    assert len(find(aws).kind("schedule")) == 3
    assert find(aws, "j").kind("schedule") == ()
    assert find(aws, "j-1").kind("schedule")[0].job == "j-1"


def test_every_object_of_the_bucket_is_read_in_part() -> None:
    read = [(path.name, ast.unparse(call)) for path, call, texts in _calls() if "GetObject" in texts]
    # The result of a job on SageMaker goes to the disk, in chunks; perform() asks for a Range, in a line of its own.
    assert {name for name, call in read if "Range" not in call} == {"perform.py", "result.py"}


def test_of_any_number_of_things_only_the_first_are_listed(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    aws, folder = account.aws(), Folder(account.bucket, "j")
    for number in range(5):
        account.put_json(f"jobs/j/boot/i-{number}.train", "")
        account.put_json(f"jobs/job-{number}/job.json", {})
    for module in ("boot", "folders"):
        monkeypatch.setattr(f"launch.ec2.{module}.MOST_LISTED", 3)
    assert list(marks(aws, folder)) == ["i-0", "i-1", "i-2"]
    assert jobs_in(aws, account.bucket) == ["j", "job-0", "job-1"]


def test_of_any_number_of_records_only_the_newest_small_ones_are_read(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws, folder = account.aws(), Folder(account.bucket, "j")
    for name in ("i-3", "i-1", "i-2"):
        account.put_json(f"{folder.exits}{name}.json", {**RECORD, "instance": name})
    account.put_json(f"{folder.exits}large.json", {**RECORD, "instance": "large", "reason": "x" * 2**16})
    monkeypatch.setattr("launch.ec2.watch.MOST_RECORDS", 2)
    account.requests.clear()

    assert len(exit_records(aws, folder)) == 2
    keys = [params["Key"] for params in account.asked("GetObject")]
    assert len(keys) == 2
    assert f"{folder.exits}large.json" not in keys
