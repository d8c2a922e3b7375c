"""`python -m launch.ec2` as it is typed: what is refused before any call, and the dry run."""

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


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("--node 2", "--nodes"),
        ("--nodes 65 --dry-run", "--max-nodes 64"),
        ("--nodes 2 --max-usd 20", "--max-usd 20"),
        ("--model resnt18 --dry-run", "'resnet18'"),
        ("--run-dir /tmp/x", "omit --run-dir and --checkpoint-dir"),
        ("stat", "'status'"),
    ],
)
def test_what_cannot_work_is_refused_before_any_call(
    argv: str, words: str, account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words in err
    assert account.requests == []


def test_a_dry_run_shows_the_plan_and_writes_nothing(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--nodes", "2", "--dry-run=full"]) == 0
    text = capsys.readouterr().out
    assert "g5.2xlarge: 16 vCPUs needed, 0 in use, 768 allowed" in text
    assert account.image_digest in text
    assert "RunInstances  start 2 nodes" in text
    assert account.left() == []
    assert not [name for name in account.operations if not name.startswith(("Describe", "Get", "List", "Head"))]


def test_a_dry_run_reports_a_quota_that_is_too_low(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    account.quota["L-DB2E81BA"] = 8
    for more in (["--dry-run"], []):
        assert main(["--nodes", "2", *more]) == 4
        assert "2 x g5.2xlarge need 16 vCPUs" in "".join(capsys.readouterr())
        assert account.left() == []


def test_a_launch_says_what_it_costs_before_anything_is_started(
    account: Account, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(account)
    words = ("--nodes", "2", "--detach", "--job-name", "demo", "--data-dir", "mine", "--outcome", str(tmp_path))
    assert terminal.type(*words) == 0
    shown = capsys.readouterr().out
    assert "at most" in shown
    assert "warning: --data-dir mine" in shown
    assert list(tmp_path.iterdir()) == []  # no outcome yet


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """A machine that never heard of AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return dict(os.environ)


def test_a_dry_run_needs_no_credentials_and_marks_what_it_could_not_look_up(nobody: dict[str, str]) -> None:
    command = [sys.executable, "-m", "launch.ec2", "--nodes", "2", "--dry-run=full"]
    done = subprocess.run(command, cwd=ROOT, env=nobody, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "<newest Deep Learning AMI>" in done.stdout
    assert "nothing was looked up" in done.stdout
    sentence = "no AWS region; give --region us-east-1, or set AWS_DEFAULT_REGION.\n"
    assert done.stdout.endswith(sentence)
    done = subprocess.run(command[:-1], cwd=ROOT, env=nobody, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {sentence}")


@pytest.mark.usefixtures("nobody")
def test_a_dry_run_without_credentials_takes_under_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # which would be waited for, and takes no processor
    words = ("-m", "launch.ec2", "--nodes", "2", "--dry-run", "--region", "eu-west-1")
    assert any(spent < 1 for spent in quiet_seconds(*words))


def test_without_boto3_the_user_learns_what_to_install(nobody: dict[str, str]) -> None:
    program = (
        "import sys; sys.modules |= dict.fromkeys(['boto3', 'botocore', 'jmespath'])\n"
        "from launch.ec2.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "--nodes", "2"]
    done = subprocess.run(command, cwd=ROOT, env=nobody, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install -c constraints.txt -e '.[aws]'" in done.stderr
    done = subprocess.run([*command, "--dry-run"], cwd=ROOT, env=nobody, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
