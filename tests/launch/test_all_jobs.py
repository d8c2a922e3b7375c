"""`python -m launch status` and the like, which find a job on any backend."""

import json
from collections.abc import Iterator

import pytest

from launch import __main__ as ddp
from launch.core.errors import NotSetUp
from launch.ec2 import __main__ as ec2
from launch.sagemaker import __main__ as sagemaker
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
    assert "no backend has a job 'another'" in capsys.readouterr().err
