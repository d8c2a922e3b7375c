"""`python -m launch.ec2 logs`: what the nodes of a job said, and what is printed where they logged nothing."""

import time
from collections.abc import Callable

import pytest

from tests.launch.ec2.terminal import Terminal

# AWS takes no events older than two weeks, so the times are around now.
T = int(time.time() * 1000) - 600_000

Write = Callable[..., None]


@pytest.fixture
def write(put_lines: Callable[..., None]) -> Write:
    """What CloudWatch gets of a node: write("demo", 0, (T, "epoch 1"))."""
    return lambda job, rank, *events: put_lines("/aws-ddp-toolkit/ec2", f"{job}/node-{rank}", *events)


@pytest.mark.parametrize(
    ("nodes", "line"), [(2, "[0] epoch 1"), (1, "epoch 1"), (None, "epoch 1")], ids=["two nodes", "one", "long gone"]
)
def test_the_logs_of_a_job_are_printed(nodes: int | None, line: str, terminal: Terminal, write: Write) -> None:
    if nodes:
        terminal.start("demo", nodes=nodes)
    write("demo", 0, (T, "epoch 1"))
    assert terminal.type("logs", "demo") == 0
    assert terminal.said == [line]


def test_only_the_last_minutes_are_shown_if_asked(terminal: Terminal, write: Write) -> None:
    terminal.start("demo")
    now = int(time.time() * 1000)  # T is older, if the test run takes long
    write("demo", 0, (now - 600_000, "ten minutes ago"), (now - 180_000, "three minutes ago"))
    terminal.type("logs", "demo", "--since", "5")
    assert terminal.said == ["three minutes ago"]
    terminal.type("logs", "demo", "--since", "1")
    assert terminal.said == ["demo logged nothing in the last 1 min"]


def test_a_job_is_followed_until_its_nodes_are_gone(terminal: Terminal, write: Write) -> None:
    (node,) = terminal.start("demo")
    write("demo", 0, (T, "epoch 1"))
    terminal.events = iter([lambda: write("demo", 0, (T + 1, "epoch 2")), lambda: terminal.account.kill(node)])
    assert terminal.type("logs", "demo", "-f") == 0
    assert terminal.said[:2] == ["epoch 1", "epoch 2"]
    assert terminal.said[2].endswith("python -m launch.ec2 status demo --region us-east-1")


def test_without_any_log_the_place_of_the_boot_log_is_shown(terminal: Terminal) -> None:
    terminal.start("demo")
    assert terminal.type("logs", "demo") == 0
    assert terminal.said[0].startswith("demo has no logs yet: ")
    bucket = terminal.account.bucket
    assert terminal.said[-1].splitlines()[-1] == f"  aws s3 sync s3://{bucket}/jobs/demo/boot/ boot --region us-east-1"


def test_a_node_that_the_job_does_not_have_is_refused(terminal: Terminal, write: Write) -> None:
    terminal.start("demo", nodes=2)
    write("demo", 0, (T, "a"))
    error = terminal.refused("logs", "job", "demo", "node", "2")
    assert (error.code, str(error)) == (2, "--node 2: demo has nodes 0, 1.")
    assert terminal.type("logs", "demo", "--node", "1") == 0
    assert terminal.text.startswith("demo has no logs yet: ")
