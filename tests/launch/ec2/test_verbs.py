"""The verbs on the command line: their help, their mistakes, the command that opens a shell."""

import re

import pytest

from tests.launch.ec2.account import Account
from tests.launch.ec2.terminal import Terminal
from tests.launch.faults import Faults, refused


@pytest.fixture
def terminal(account: Account) -> Terminal:
    return Terminal(account)


@pytest.mark.parametrize("verb", ["status", "logs", "stop", "leaks", "ssh"])
def test_help_says_what_a_verb_does_with_an_example(
    terminal: Terminal, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        terminal.type(verb, "--help")
    text = capsys.readouterr().out
    assert end.value.code == 0
    assert f"\n  python -m launch.ec2 {verb}" in text
    assert "--region" in text
    assert terminal.account.requests == []


def test_the_exit_codes_of_leaks_are_in_its_help(terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        terminal.type("leaks", "--help")
    assert "Exit code 0: no leak is left; 4: one is, or AWS did not answer." in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["status", "logs", "stop", "leaks", "ssh"])
def test_a_misspelt_flag_is_refused_before_aws_is_asked(
    terminal: Terminal, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert terminal.type(verb, "--regoin", "us-east-1") == 2
    assert capsys.readouterr().err == (
        "error: unknown flag --regoin; did you mean --region? See --help for all of them.\n"
    )
    assert terminal.account.requests == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["logs", "demo", "--node", "-1"], "--node -1: must be greater than or equal to 0.\n"),
        (["logs", "demo", "--since", "soon"], "--since soon: must be a number.\n"),
        (["logs", "demo", "--since", "nan"], "--since nan: must be a finite number.\n"),
        (["ssh", "demo", "--node", "one"], "--node one: must be a whole number.\n"),
        (["stop", "demo", "other"], "unexpected word 'other'; settings are given as --name value.\n"),
    ],
)
def test_a_wrong_value_is_refused_in_a_sentence(
    terminal: Terminal, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert terminal.type(*words) == 2
    assert capsys.readouterr().err == f"error: {sentence}"
    assert terminal.account.requests == []


@pytest.mark.parametrize("words", [("status",), ("logs", "demo"), ("stop", "demo"), ("leaks",), ("ssh", "demo")])
def test_without_credentials_every_verb_says_what_to_do(
    terminal: Terminal, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert terminal.type(*words) == 2
    assert (
        capsys.readouterr().err
        == "error: no AWS credentials; run aws configure or aws sso login, or set AWS_PROFILE.\n"
    )


@pytest.mark.parametrize("words", [("status",), ("logs", "demo"), ("stop", "demo"), ("leaks",), ("ssh", "demo")])
def test_a_permission_that_is_missing_is_named(
    terminal: Terminal, faults: Faults, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    faults.on("DescribeVolumes", refused("UnauthorizedOperation", 403), nth=None)
    assert terminal.type(*words) == 4
    assert capsys.readouterr().err.startswith("error: these credentials may not ec2:DescribeVolumes; ")


@pytest.mark.parametrize("words", [("status", "demo"), ("logs", "demo"), ("leaks",), ("ssh", "demo")])
def test_looking_changes_nothing(terminal: Terminal, words: tuple[str, ...]) -> None:
    terminal.start("demo")
    terminal.account.requests.clear()
    assert terminal.type(*words) == 0
    assert {re.match("[A-Z][a-z]+", name)[0] for name in terminal.account.operations} <= {  # type: ignore[index]
        "Describe", "Get", "List", "Filter",
    }  # fmt: skip


# ---- ssh


def test_ssh_prints_the_command_that_opens_a_shell_on_the_node(terminal: Terminal) -> None:
    _, second = terminal.start("demo", nodes=2)
    assert terminal.type("ssh", "demo", "--node", "1") == 0
    commands = [line for line in terminal.said if not line.startswith("#")]
    assert commands == [f"aws ssm start-session --target {second} --region us-east-1"]
    assert "Session Manager plugin" in terminal.said[0]
    assert "sudo docker exec -it ddp bash" in terminal.said[-2]


def test_ssh_takes_the_rank_from_cluster_json_also_if_node_0_is_lost(terminal: Terminal) -> None:
    first, second = terminal.start("demo", nodes=2)
    terminal.account.kill(first)
    assert terminal.type("ssh", "demo", "--node", "1") == 0
    assert second in terminal.said[1]
    assert str(terminal.refused("ssh", "job", "demo", "node", "0")) == "--node 0: demo has nodes 1."


def test_ssh_works_before_cluster_json_is_there(terminal: Terminal) -> None:
    _, second = terminal.start("demo", nodes=2, write=False)
    assert terminal.type("ssh", "demo", "--node", "1") == 0
    assert second in terminal.said[1]


def test_ssh_names_the_nodes_there_are(terminal: Terminal) -> None:
    terminal.start("demo", nodes=2)
    error = terminal.refused("ssh", "job", "demo", "node", "2")
    assert (error.code, str(error)) == (2, "--node 2: demo has nodes 0, 1.")


def test_ssh_to_a_job_that_is_over_points_to_its_logs(terminal: Terminal) -> None:
    terminal.account.put_json("jobs/demo/job.json", {"job": "demo", "ended": 1})
    error = terminal.refused("ssh", "job", "demo")
    assert error.code == 2
    assert str(error).endswith("python -m launch.ec2 logs demo --region us-east-1")


def test_ssh_without_a_job_names_those_there_are(terminal: Terminal) -> None:
    terminal.start("one")
    assert str(terminal.refused("ssh")) == "no job given; use python -m launch.ec2 ssh JOB.  Running: one."
