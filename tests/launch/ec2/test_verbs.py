"""The verbs on the command line: their mistakes, the command that opens a shell, and jobs of other backends."""

import re

import pytest

from tests.launch.ec2.account import Account
from tests.launch.ec2.terminal import Terminal

# ---- verbs


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["status", "--regoin", "us-east-1"], "--region"),
        (["logs", "demo", "--node", "-1"], "--node"),
        (["logs", "demo", "--since", "nan"], "--since"),
        (["stop", "demo", "other"], "'other'"),
    ],
)
def test_a_mistake_is_refused_before_any_request(
    terminal: Terminal, words: list[str], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert terminal.type(*words) == 2
    assert flag in capsys.readouterr().err
    assert terminal.account.requests == []


@pytest.mark.parametrize("words", [("status", "demo"), ("logs", "demo"), ("leaks",), ("ssh", "demo", "--print")])
def test_looking_changes_nothing(terminal: Terminal, words: tuple[str, ...]) -> None:
    terminal.start("demo")
    terminal.account.requests.clear()
    assert terminal.type(*words) == 0
    assert {re.match("[A-Z][a-z]+", name)[0] for name in terminal.account.operations} <= {  # type: ignore[index]
        "Describe", "Get", "List", "Filter",
    }  # fmt: skip


# ---- ssh


def test_ssh_opens_a_shell_on_the_node(terminal: Terminal) -> None:
    """By the rank in cluster.json, also if node 0 is lost, or by the order of launch before it is there."""
    first, second = terminal.start("demo", nodes=2)
    _, early = terminal.start("early", nodes=2, write=False)
    terminal.account.kill(first)
    for job, node in (("demo", second), ("early", early)):
        assert terminal.type("ssh", job, "--node", "1", "--print") == 0
        assert terminal.text.splitlines()[:1] == [f"aws ssm start-session --target {node} --region us-east-1"]
    for number in ("0", "2"):
        error = terminal.refused("ssh", "job", "demo", "node", number)
        assert (error.code, str(error)) == (2, f"--node {number}: demo has nodes 1.")


def test_ssh_to_a_job_that_is_over_points_to_its_logs(terminal: Terminal) -> None:
    terminal.account.put_json("jobs/demo/job.json", {"job": "demo", "ended": 1})
    error = terminal.refused("ssh", "job", "demo")
    assert error.code == 2
    assert "python -m launch.ec2 logs demo --region us-east-1" in str(error)


# ---- other backends


SPEC = {"job": "shared", "backend": "sagemaker", "where": {"nodes": 1}, "train": []}


@pytest.fixture(autouse=True)
def on_sagemaker(account: Account) -> None:
    """There is a job on SageMaker that is called so."""
    account.put_json("jobs/shared/job.json", SPEC)


@pytest.mark.parametrize("verb", ["--job-name", "status", "logs", "stop", "ssh", "attach"])
def test_every_command_says_where_the_job_is(account: Account, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert Terminal(account).type(verb, "shared") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "python -m launch.sagemaker status shared" in err
    assert account.left() == []
    assert account.s3("jobs/shared/job.json") == SPEC
