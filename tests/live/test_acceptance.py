"""The acceptance suite itself: what it refuses, records and compares, and that it cleans up when it is ended."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest

from tests.launch.ec2.account import Account
from tests.live.__main__ import Refused, wanted
from tests.live.aws import RealPlace
from tests.live.cases import CASES, data_by_instance, infra_down, infra_up
from tests.live.network import remove_kept
from tests.live.record import Record, Tried
from tests.live.spy import fields_of
from tests.live.suite import Broken, Suite

ON_AWS = {"ACCEPTANCE": "aws", "ACCEPTANCE_REGION": "us-east-1"}


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", Account.region)
    with Account.opened() as opened:
        yield opened


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({}, "this spends money on a real account"),
        ({"ACCEPTANCE": "yes"}, "this spends money"),
        ({"ACCEPTANCE": "aws"}, "name the region"),
        ({**ON_AWS, "ACCEPTANCE_MAX_USD": "3.01"}, "the suite spends no more"),
        ({**ON_AWS, "ACCEPTANCE_MAX_USD": "much"}, "must be USD"),
        ({**ON_AWS, "ACCEPTANCE_MAX_USD": "0.5"}, "and the limit is 0.50"),
        ({**ON_AWS, "ACCEPTANCE_CASES": "nothing"}, "no case nothing; there are doctor --fix, "),
    ],
)
def test_without_an_opt_in_or_over_its_limit_nothing_runs(env: dict[str, str], why: str) -> None:
    with pytest.raises(Refused, match=why.replace("(", r"\(")):
        wanted(env)


def test_all_cases_stay_under_the_limit() -> None:
    assert wanted(ON_AWS).cases == tuple(case for case in CASES if not case.is_gpu)
    assert wanted({**ON_AWS, "ACCEPTANCE_GPU": "1"}).most_usd <= 3


def test_what_a_case_put_there_for_an_instance_is_removed(account: Account, tmp_path: Path) -> None:
    """Its commands are played elsewhere (tests/launch/data/on_ec2); here none of them does anything."""
    suite = Suite(RealPlace(account.region), tmp_path, "1", Record("here", "now", 1.0, [Tried("data by instance")]))
    began = mock.Mock(text="")
    with (
        mock.patch.object(Suite, "start", return_value=began),
        mock.patch.object(Suite, "publishing", side_effect=[[suite.job("tar")], [suite.job("tar")], [], []]),
        mock.patch.object(Suite, "kill"),
        mock.patch.object(Suite, "run", return_value=(0, "no instance publishes")),
        mock.patch.object(Suite, "verified", return_value="all"),
    ):
        data_by_instance(suite)
        assert suite.left() == ["sources/acceptance-1-tar.tar"]
    suite.clean()
    assert (suite.left(), suite.tried.held) == ([], True)


def test_what_was_in_the_account_before_outlives_the_suite(account: Account, tmp_path: Path) -> None:
    """A stack of before has left its bucket, and `up` adopts it: it may hold every result."""
    account.put(account.bucket, "jobs/mine/run/model.pt", b"weights")
    suite = Suite(RealPlace(account.region), tmp_path, "1", Record("here", "now", 1.0, [Tried("infra down")]))
    with mock.patch.object(Suite, "run", return_value=(0, "up to date")), suppress(Broken):
        infra_up(suite)
        infra_down(suite)
    assert suite.made_stack
    assert suite.made == {"NodeLogs"}
    assert account.s3_keys() == ["jobs/mine/run/model.pt"]
    assert account.aws().call("ecr", "DescribeRepositories")["repositories"]


def test_what_this_run_made_is_removed_and_what_stays_is_listed(account: Account, tmp_path: Path) -> None:
    aws = account.aws()
    aws.call("logs", "CreateLogGroup", {"logGroupName": "/aws-ddp-toolkit/ec2"})
    account.put(account.bucket, "jobs/acceptance/run/model.pt", b"weights")
    suite = Suite(RealPlace(account.region), tmp_path, "1", Record("here", "now", 1.0, [Tried("infra down")]))
    suite.made_stack, suite.made = True, frozenset({"JobBucket", "Repository", "NodeLogs"})
    assert suite.set_up() == ["JobBucket", "NodeLogs", "Repository"]
    remove_kept(aws, account.id, account.bucket, suite.made)
    assert suite.set_up() == []


def test_answers_are_noted_without_their_values() -> None:
    answer = {"Reservations": [{"Instances": [{"InstanceId": "i-secret"}]}, {"OwnerId": "1"}], "ResponseMetadata": {}}
    assert sorted(set(fields_of(answer))) == [
        "Reservations", "Reservations.Instances", "Reservations.Instances.InstanceId", "Reservations.OwnerId",
    ]  # fmt: skip
