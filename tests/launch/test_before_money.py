"""What happens before a job costs money, on the backends that are billed: one screen, one question, no job twice."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launch.ec2.__main__ import main
from tests.launch.ec2.account import Account
from tests.launch.ec2.terminal import Terminal
from tests.launch.sagemaker.world import Stage

Type = Callable[..., int]
JOB = ("--dataset", "cifar10", "--max-hours", "1", "--detach")


@pytest.fixture(params=["ec2", "sagemaker"])
def billed(request: pytest.FixtureRequest) -> Iterator[tuple[Type, Callable[[], Any]]]:
    """A command line, and the names of the machines or jobs that it has started."""
    if request.param == "ec2":
        with Account.opened() as account:
            yield Terminal(account).type, lambda: [node.id for node in account.nodes]
    else:
        stage: Stage = request.getfixturevalue("stage")
        yield stage.type, lambda: list(stage.account.jobs)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage.opened() as opened:
        yield opened


def test_an_equal_job_that_runs_is_that_job(billed: tuple[Type, Callable[[], Any]]) -> None:
    run, started = billed
    assert run(*JOB) == 0
    first = started()
    assert len(first) == 1

    assert run(*JOB) == 0
    assert started() == first

    assert run(*JOB, "--epochs", "7") == 0  # another one
    assert len(started()) == 2
    assert run(*JOB, "--new") == 0
    assert len(started()) == 3


def test_naming_the_default_region_makes_no_other_job(billed: tuple[Type, Callable[[], Any]]) -> None:
    run, started = billed
    assert run(*JOB) == 0
    assert run(*JOB, "--region", "us-east-1") == 0
    assert len(started()) == 1


def test_a_job_that_has_lost_its_node_is_still_that_job() -> None:
    with Account.opened() as account:
        terminal = Terminal(account)
        assert terminal.type(*JOB) == 0
        account.kill(account.nodes[0].id)

        assert terminal.type(*JOB) == 0

        (node,) = account.nodes  # its replacement
        assert len({tags_of(one)["aws-ddp-toolkit:job"] for one in account.ec2.all_instances()}) == 1
        assert tags_of(node)["aws-ddp-toolkit:generation"] == "2"


def test_a_limit_for_every_job_is_no_answer_for_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "aws-ddp-toolkit").mkdir()
    (tmp_path / "aws-ddp-toolkit/config.yaml").write_text("max_usd: 1000\n")
    asked: list[str] = []
    with Account.opened() as account:
        runtime = replace(Terminal(account).runtime, approve=asked.append)
        assert main([*JOB, "--dataset", "digits"], runtime) == 0
        assert len(asked) == 1
        assert main([*JOB, "--dataset", "digits", "--epochs", "2", "--max-usd", "5"], runtime) == 0
        assert len(asked) == 1


def tags_of(node: Any) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in node.get_tags()}


def test_the_plan_of_a_job_fits_on_a_screen(
    billed: tuple[Type, Callable[[], Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    run, started = billed
    assert run(*JOB, "--dry-run") == 0
    shown = capsys.readouterr().out.splitlines()
    assert started() == []
    assert len(shown) <= 25
    for what in (
        r"cifar10-resnet18-",
        "us-east-1",
        "time limit +1 h",
        r"expected +[\d.]+ USD",
        r"at most +[\d.]+ USD",
    ):
        assert any(re.search(what, line) for line in shown), what
    assert re.fullmatch(r"  python -m launch\.\w+ --dataset cifar10 --max-hours 1 --detach", shown[-1])

    assert run(*JOB, "--dry-run=full") == 0
    assert len(capsys.readouterr().out.splitlines()) > len(shown)


def test_a_job_that_its_time_limit_would_end_is_warned_of(
    billed: tuple[Type, Callable[[], Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = billed
    assert run(*JOB, "--epochs", "5000", "--dry-run") == 0
    assert re.search(r"^warning: .* expected .* time limit .*--max-hours", capsys.readouterr().out, re.MULTILINE)


def test_a_batch_that_cannot_fit_is_refused_with_one_that_does(
    billed: tuple[Type, Callable[[], Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    run, started = billed
    words = (*JOB, "--batch-size", "200000", "--yes")
    assert run(*words) == 2
    assert started() == []
    remedy = re.search(r"--batch-size \d+ --accumulate \d+", capsys.readouterr().err)
    assert remedy

    assert run(*words, *remedy[0].split(), "--dry-run") == 0
    assert run(*words, "--anyway", "--dry-run") == 0
