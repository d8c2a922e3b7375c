"""python -m launch.doctor: what it prints, asks and may."""

import re
from collections.abc import Iterator, Sequence

import pytest

from launch.doctor import checks
from launch.doctor.__main__ import main
from launch.doctor.commands import _commands_in
from launch.ec2.examination import EXAMINATION
from tests.launch.doctor.account import Patient
from tests.launch.ec2.terminal import Terminal
from tests.launch.privilege.enforced import enforced

READS = re.compile(r"Get|Describe|List|Head|BatchGet|Simulate")
MOST_CALLS = 70


@pytest.fixture
def patient() -> Iterator[Patient]:
    with Patient.opened() as opened:
        yield opened


def test_a_sound_account_lacks_nothing(patient: Patient) -> None:
    found = patient.examine()

    assert {name: row["state"] for name, row in found.items() if row["state"] != "ok"} == {}
    assert {check.name for check in checks.all_checks(EXAMINATION)} - found.keys() == {
        "spot role", "reservation", "data in S3", "queue",  # which this job does not use
    }  # fmt: skip


def test_it_reads_only_and_asks_little(patient: Patient) -> None:
    before, first = patient.account.resources(), len(patient.account.requests)
    patient.examine("--data-volume", "multi-attach")
    asked = patient.account.requests[first:]

    assert [str(call) for call in asked if not READS.match(call.operation) and not call.params.get("DryRun")] == []
    assert patient.account.resources() == before
    assert len(asked) <= MOST_CALLS


def test_the_launchers_and_its_own_policy_are_all_that_it_needs() -> None:
    with Patient.opened() as patient, enforced(patient.account, "doctor") as watch:
        found = patient.examine()

    assert [str(need) for need in watch.refused] == []
    assert [row for row in found.values() if row["state"] == "unknown"] == []


def test_it_prints_a_table_and_below_it_what_mends(patient: Patient) -> None:
    patient.account.ec2.delete_snapshot(patient.account.snapshot)
    assert patient.type() == 4

    (text,) = patient.said
    assert re.search(r"^  snapshot +missing +no snapshot in us-east-1 is tagged", text, re.MULTILINE)
    assert re.search(r"^  snapshot +python -m launch.data publish", text.partition("to fix it:")[2], re.MULTILINE)
    assert text.splitlines()[-1].startswith("1 missing, ")


def test_a_setting_that_no_account_can_run_is_refused_before_any_call(
    capsys: pytest.CaptureFixture[str], patient: Patient
) -> None:
    asked = len(patient.account.requests)

    assert patient.type("--nodes", "100") == 2
    assert "--nodes 100 exceeds --max-nodes 64" in capsys.readouterr().err
    assert main(["--for", "slurm"]) == 2
    assert "unknown backend 'slurm'" in capsys.readouterr().err
    assert len(patient.account.requests) == asked


def test_a_launch_that_aws_refuses_recommends_it(capsys: pytest.CaptureFixture[str], patient: Patient) -> None:
    patient.account.quota["L-DB2E81BA"] = 0.0

    assert Terminal(patient.account).type("--nodes", "2", "--dataset", "cifar10") == 4
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .endswith("python -m launch.doctor --for ec2 --fix --nodes 2 --dataset cifar10")
    )
    assert Terminal(patient.account).type("--nodes", "2", "--dataset", "nonsense") == 2
    assert "launch.doctor" not in capsys.readouterr().err


# ---- --fix


def test_fixing_runs_each_command_once_until_nothing_is_missing(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    quotas, ran = patient.account.rules.quota, list[list[str]]()
    quotas["L-DB2E81BA"] = 8.0
    monkeypatch.setattr("shutil.which", lambda name: name)

    def grant(words: Sequence[str]) -> int:
        ran.append(list(words))
        quotas["L-DB2E81BA"] = float(words[words.index("--desired-value") + 1])
        return 0

    patient.run = grant

    assert patient.type("--fix", "--yes") == 0
    assert [words[:3] for words in ran] == [["aws", "service-quotas", "request-service-quota-increase"]]
    assert "aws service-quotas " in patient.said[1]


@pytest.mark.slow("launch.doctor --fix runs no command twice that did not help")
def test_fixing_does_not_repeat_what_did_not_help(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    patient.account.rules.quota["L-DB2E81BA"] = 8.0
    monkeypatch.setattr("shutil.which", lambda name: name)

    assert patient.type("--fix", "--yes") == 4
    assert len([line for line in patient.said if ": $ " in line]) == 1


@pytest.mark.slow("launch.doctor --fix goes on without what is not agreed to")
def test_what_is_not_agreed_to_is_left_out_and_the_rest_goes_on(patient: Patient) -> None:
    patient.account.rules.quota["L-DB2E81BA"] = 8.0
    patient.wants, patient.run = lambda what: False, unreachable

    assert patient.type("--fix") == 4
    assert "1 missing" in patient.said[-1]


def test_only_what_is_the_toolkits_is_changed_by_itself() -> None:
    """Not the user's own groups, networks and keys, whose commands are printed."""
    runs = "aws iam attach-user-policy --user-name me --policy-arn a:b"
    assert list(_commands_in(f"{runs} && {runs}2", None)) == [runs, f"{runs}2"]
    assert list(_commands_in("python -m launch.infra up", "eu-west-1")) == [
        "python -m launch.infra up --region eu-west-1"
    ]
    for remedy in (
        "aws configure or aws sso login, then aws sts get-caller-identity",
        "python -m launch.data, or aws s3 cp a b",
        "aws ec2 create-default-vpc",
        "aws iam attach-user-policy --user-name NAME --policy-arn a:b",
    ):
        assert list(_commands_in(remedy, "us-east-1")) == []


def unreachable(words: Sequence[str]) -> int:
    raise AssertionError(words)
