"""`python -m launch status` and the like, which find a job on any backend."""

import json
from collections.abc import Iterator

import pytest

from launch import __main__ as ddp
from launch.core.errors import NotSetUp
from launch.ec2 import __main__ as ec2
from launch.sagemaker import __main__ as sagemaker
from launch.slurm import __main__ as slurm
from tests.launch.ec2.account import Account
from tests.launch.ec2.terminal import Terminal


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """An account with a job on EC2, and no SageMaker or Slurm that answers."""

    def away() -> None:
        raise NotSetUp("no SageMaker here.")

    with Account.opened() as account:
        terminal = Terminal(account)
        launcher, main = ec2.launcher, ec2.main
        monkeypatch.setattr(ec2, "launcher", lambda runtime=None: launcher(runtime or terminal.runtime))
        monkeypatch.setattr(ec2, "main", lambda argv, runtime=None: main(argv, runtime or terminal.runtime))
        monkeypatch.setattr(sagemaker, "launcher", away)
        assert terminal.type("--job-name", "one", "--dataset", "digits", "--detach") == 0
        terminal.said.clear()
        yield terminal


def test_the_jobs_of_all_backends_are_listed_and_one_that_is_away_is_a_warning(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ddp.main(["status"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[:3] for line in out.splitlines() if "one" in line] == [["one", "ec2", "running"]]
    assert "no SageMaker here" in err

    assert ddp.main(["status", "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (job["job"], job["backend"], job["nodes"]) == ("one", "launch.ec2", 1)


def test_a_verb_finds_the_backend_of_the_job(terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    assert ddp.main(["stop", "one"]) == 0
    assert terminal.account.nodes == []

    assert ddp.main(["stop", "another"]) == 2
    assert "whether a backend has a job 'another' is not known" in capsys.readouterr().err


def test_switches_may_stand_before_the_job(terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    assert ddp.main(["status", "--json", "one"]) == 0
    assert ddp.main(["logs", "-f", "another"]) == 2
    assert "a job 'another'" in capsys.readouterr().err


def test_no_backend_that_answers_is_an_error_and_not_an_empty_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def away() -> None:
        raise NotSetUp("no account.")

    for module in (ec2, sagemaker, slurm):
        monkeypatch.setattr(module, "launcher", away)
    assert ddp.main(["status", "--json"]) == 4
    assert json.loads(capsys.readouterr().out) == {"jobs": [], "is_complete": False}
