"""The acceptance suite itself: what it refuses, records and compares, and that it cleans up when it is ended."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest

from launch.ec2.__main__ import main as launch
from tests.conftest import ROOT
from tests.launch.ec2.account import Account
from tests.live.__main__ import Refused, wanted
from tests.live.aws import FIND, RealPlace
from tests.live.cases import CASES, data_by_instance, infra_down, infra_up
from tests.live.network import remove_kept
from tests.live.record import Claim, Record, Tried, differences, embedded, read_answers
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
        ({**ON_AWS, "ACCEPTANCE_CASES": "nothing"}, "no case nothing; there are infra up, "),
    ],
)
def test_without_an_opt_in_or_over_its_limit_nothing_runs(env: dict[str, str], why: str) -> None:
    with pytest.raises(Refused, match=why.replace("(", r"\(")):
        wanted(env)


def test_all_cases_stay_under_the_limit() -> None:
    assert wanted(ON_AWS).cases == tuple(case for case in CASES if not case.is_gpu)
    assert wanted({**ON_AWS, "ACCEPTANCE_GPU": "1"}).most_usd <= 3


def test_what_the_embedded_aws_has_no_nodes_for_is_tried_on_aws_alone() -> None:
    here = {case.name for case in wanted({"ACCEPTANCE": "embedded"}).cases}
    assert {case.name for case in wanted(ON_AWS).cases} - here == {"data by instance"}


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


def test_the_program_says_so_and_ends_with_2(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("ACCEPTANCE")}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.live"], cwd=tmp_path, env={**env, "PYTHONPATH": str(ROOT)}, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("refused: this spends money")
    assert list(tmp_path.iterdir()) == []


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


def test_what_this_run_made_is_removed_and_what_stays_is_told(account: Account, tmp_path: Path) -> None:
    aws = account.aws()
    aws.call("logs", "CreateLogGroup", {"logGroupName": "/aws-ddp-toolkit/ec2"})
    account.put(account.bucket, "jobs/acceptance/run/model.pt", b"weights")
    suite = Suite(RealPlace(account.region), tmp_path, "1", Record("here", "now", 1.0, [Tried("infra down")]))
    suite.made_stack, suite.made = True, frozenset({"JobBucket", "Repository", "NodeLogs"})
    assert suite.set_up() == ["JobBucket", "NodeLogs", "Repository"]
    remove_kept(aws, account.id, account.bucket, suite.made)
    assert suite.set_up() == []


def test_jobs_have_room_for_the_machine_image(account: Account, tmp_path: Path) -> None:
    """All were refused at planning where AWS's image takes 75 GB."""
    suite = Suite(RealPlace(account.region), tmp_path, "1", Record("here", "now", 1.0, [Tried("two nodes")]))
    assert launch([*suite.train("two")[1:], "--dry-run"]) == 0


def test_the_worker_that_is_killed_is_the_process_with_a_rank(tmp_path: Path) -> None:
    """Not `docker run`, whose command line names the trainer as well."""
    name = f"RANK_OF_{os.getpid()}"
    words = [sys.executable, "-c", "input()", "-m", "trainer"]
    with (
        subprocess.Popen(words, stdin=subprocess.PIPE) as docker,
        subprocess.Popen(words, stdin=subprocess.PIPE, env={**os.environ, name: "0"}) as worker,
    ):
        found = subprocess.run(
            ["sh", "-c", FIND.replace("LOCAL_RANK", name)], text=True, capture_output=True, check=True
        )
        for process in (docker, worker):
            process.kill()
    assert found.stdout.split() == [str(worker.pid)]


@pytest.mark.parametrize(("status", "why"), [("Success", ""), ("Failed", "Failed: no worker runs here")])
def test_a_worker_counts_as_killed_once_run_command_says_so(status: str, why: str) -> None:
    class Ssm:
        def call(self, _service: str, operation: str, _params: object) -> dict[str, object]:
            if operation == "SendCommand":
                return {"Command": {"CommandId": "c"}}
            return {"Status": status, "StandardOutputContent": "no worker runs here" if why else ""}

    with mock.patch("tests.live.aws.ASK_EVERY_S", 0.0):
        assert RealPlace("us-east-1").kill_worker(Ssm(), "i-1") == why  # type: ignore[arg-type]


def test_answers_are_compared_by_operation_code_and_fields() -> None:
    there = {"ec2:RunInstances": {"ok": ["Instances", "Instances.State"]}}
    here = {
        "ec2:RunInstances": {"ok": ["Instances", "Instances.CpuOptions"], "Unsupported": []},
        "ec2:GetConsoleOutput": {"ok": ["Output"]},
    }
    assert differences(here, there) == [
        "ec2:RunInstances: fields that the embedded AWS lacks: Instances.CpuOptions",
        "ec2:RunInstances: answered Unsupported; the embedded AWS only ok",
        "ec2:GetConsoleOutput: never asked of the embedded AWS",
    ]


def test_answers_are_noted_without_their_values(tmp_path: Path) -> None:
    answer = {"Reservations": [{"Instances": [{"InstanceId": "i-secret"}]}, {"OwnerId": "1"}], "ResponseMetadata": {}}
    assert sorted(set(fields_of(answer))) == [
        "Reservations", "Reservations.Instances", "Reservations.Instances.InstanceId", "Reservations.OwnerId",
    ]  # fmt: skip
    notes = tmp_path / "case.answers"
    row = {"operation": "ec2:DescribeInstances", "code": "ok", "fields": ["Reservations"]}
    notes.write_text(json.dumps(row) + "\n" + '{"operation": "cut o')
    assert read_answers(notes) == {"ec2:DescribeInstances": {"ok": ["Reservations"]}}
    assert read_answers(tmp_path / "none") == {}


def test_the_record_and_its_page_have_every_claim(tmp_path: Path) -> None:
    tried = Tried("stop", claims=[Claim("stop ends it", True), Claim("twice is safe", False, "error: no")])
    record = Record("us-east-1", "2026-11-22 20:00 UTC", 1.56, [tried])
    record.write(tmp_path)

    kept, page = json.loads((tmp_path / "acceptance.json").read_text()), (tmp_path / "acceptance.md").read_text()
    assert (kept["held"], kept["tried"][0]["claims"][1]["seen"]) == (False, "error: no")
    assert "1 of 2 claims held in 1 cases; at most 1.56 USD.  Nothing was left behind." in page
    assert "- **FAILED**: twice is safe (error: no)" in page


def test_there_is_a_rehearsal_to_compare_with() -> None:
    assert {"ec2:RunInstances", "cloudformation:CreateChangeSet", "scheduler:CreateSchedule"} <= embedded().keys()
