"""`python -m launch.ec2` as it is typed: what is refused before any call, and the dry run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from launch.ec2.__main__ import main
from tests.conftest import ROOT
from tests.launch.ec2.account import Account
from tests.launch.ec2.terminal import Terminal
from tests.test_import_rules import quiet_seconds
from trainer.outcome import read


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ("--node 2", "unknown flag --node; did you mean --nodes?"),
        ("--nodes 0", "--nodes 0: must be greater than or equal to 1."),
        ("--nodes 65", "--nodes 65 exceeds --max-nodes 64"),
        ("--instance-type g5.2xlage", "unknown instance type 'g5.2xlage'; did you mean 'g5.2xlarge'?"),
        (
            "--instance-type ml.g5.2xlarge",
            "on EC2 give g5.2xlarge.",
        ),
        ("--instance-type c7i.2xlarge", "add --allow-cpu"),
        ("--nproc-per-node 2", "--nproc-per-node 2: g5.2xlarge has 1 GPU"),
        ("--nodes 2 --max-usd 20", "2 x g5.2xlarge for 12 h may cost"),
        ("--job-name my_job", "--job-name my_job: at most 48 letters, digits and hyphens"),
        ("--model resnt18", "did you mean 'resnet18'?"),
        ("--warmup-epochs 9", "--warmup-epochs 9 leaves nothing of 5 epochs"),
        ("--spot --capacity-block cr-1", "--spot excludes a capacity reservation or block"),
        ("--run-dir /tmp/x", "omit --run-dir and --checkpoint-dir."),
        ("--data-s3 bucket/x", "--data-s3 bucket/x: must have the form s3://bucket/folder."),
        ("stat", "unknown verb 'stat'; did you mean 'status'?"),
    ],
)
@pytest.mark.parametrize("more", [[], ["--dry-run"]], ids=["launch", "dry run"])
def test_what_cannot_work_is_refused_before_any_call(
    argv: str, sentence: str, more: list[str], account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*argv.split(), *more]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert sentence in err
    assert account.requests == []


def test_a_dry_run_shows_the_plan_and_writes_nothing(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--nodes", "2", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "g5.2xlarge: 16 vCPUs needed, 0 in use, 768 allowed" in text
    assert account.image_digest in text
    assert "RunInstances  start 2 nodes" in text
    assert account.left() == []
    assert not [name for name in account.operations if not name.startswith(("Describe", "Get", "List", "Head"))]


def test_a_dry_run_for_programs_has_every_parameter(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--nodes", "2", "--dry-run=json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    (start,) = [step for step in plan["steps"] if "first_that_succeeds" in step]
    params = start["first_that_succeeds"][0]["params"]
    assert params["MinCount"] == params["MaxCount"] == 2
    assert params["UserData"].startswith("#!/bin/bash\n")


def test_a_dry_run_tells_what_speaks_against_the_launch(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    account.quota["L-DB2E81BA"] = 8
    assert main(["--nodes", "2", "--dry-run"]) == 4
    assert "problem: 2 x g5.2xlarge need 16 vCPUs" in capsys.readouterr().out


def test_a_launch_without_room_in_the_quota_makes_nothing(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    account.quota["L-DB2E81BA"] = 8
    assert main(["--nodes", "2"]) == 4
    assert "error: 2 x g5.2xlarge need 16 vCPUs" in capsys.readouterr().err
    assert account.left() == []


def test_every_candidate_type_has_its_own_quote(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--instance-type", "g5.2xlarge,g5.12xlarge", "--dry-run=json"]) == 0
    quotes = json.loads(capsys.readouterr().out)["quotes"]
    assert [quote["instance"] for quote in quotes] == ["g5.2xlarge", "g5.12xlarge"]
    assert quotes[0]["usd_per_hour"] < 2 < 5 < quotes[1]["usd_per_hour"]
    # Twelve hours, and filling the volumes of every start.
    assert 12 <= quotes[1]["most_usd"] / quotes[1]["usd_per_hour"] < 13


def test_a_launch_says_what_it_costs_before_anything_is_started(account: Account) -> None:
    terminal = Terminal(account)
    assert terminal.type("--nodes", "2", "--detach", "--job-name", "demo", "--data-dir", "mine") == 0
    before = terminal.said[: terminal.said.index("save the settings")]
    assert any("at most" in text and "warning: --data-dir mine" in text for text in before)
    terminal.type("stop", "demo")


def test_a_detached_launch_has_no_outcome_yet(account: Account, tmp_path: Path) -> None:
    terminal = Terminal(account)
    assert terminal.type("--detach", "--job-name", "demo", "--outcome", str(tmp_path)) == 0
    assert list(tmp_path.iterdir()) == []
    terminal.type("stop", "demo")


def test_a_failed_launch_writes_its_outcome_with_the_price(account: Account, tmp_path: Path) -> None:
    account.capacity["g5.2xlarge"] = 0
    assert Terminal(account).type("--job-name", "demo", "--outcome", str(tmp_path)) == 4
    outcome = read(tmp_path)
    assert outcome is not None
    assert (outcome.state, outcome.exit_code) == ("failed", 4)


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """A machine that never heard of AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return dict(os.environ)


def test_a_dry_run_needs_no_credentials_and_marks_what_it_could_not_look_up(nobody: dict[str, str]) -> None:
    command = [sys.executable, "-m", "launch.ec2", "--nodes", "2", "--dry-run"]
    done = subprocess.run(command, cwd=ROOT, env=nobody, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "machine image  <newest Deep Learning AMI>" in done.stdout
    assert "warning: nothing was looked up" in done.stdout
    assert done.stdout.endswith("problem: no AWS region; give --region us-east-1, or set AWS_DEFAULT_REGION.\n")


@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize("region", [(), ("--region", "eu-west-1")], ids=["no region", "a region"])
def test_a_dry_run_without_credentials_takes_under_a_second(region: tuple[str, ...]) -> None:
    assert any(spent < 1 for spent in quiet_seconds("-m", "launch.ec2", "--nodes", "2", "--dry-run", *region))


def test_without_a_region_a_launch_ends_with_a_sentence(nobody: dict[str, str]) -> None:
    command = [sys.executable, "-m", "launch.ec2", "--nodes", "2"]
    done = subprocess.run(command, cwd=ROOT, env=nobody, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: no AWS region; give --region us-east-1, or set AWS_DEFAULT_REGION.\n"


def test_without_boto3_the_user_learns_what_to_install(nobody: dict[str, str]) -> None:
    program = (
        "import sys; sys.modules |= dict.fromkeys(['boto3', 'botocore', 'jmespath'])\n"
        "from launch.ec2.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "--nodes", "2"]
    done = subprocess.run(command, cwd=ROOT, env=nobody, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    remedy = "run pip install -c constraints.txt -e '.[aws]' in the checkout."
    assert done.stderr == f"error: boto3 is not installed; {remedy}\n"
    done = subprocess.run([*command, "--dry-run"], cwd=ROOT, env=nobody, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
