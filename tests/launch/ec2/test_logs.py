"""The lines of a job's nodes, each once, in the order of their times, from the beginning to the end."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from launch.aws import Aws
from launch.ec2.logs import LogTail, follow
from launch.ec2.stop import Clock
from launch.errors import AwsError
from tests.launch.ec2.account import Account
from tests.launch.ec2.terminal import Terminal
from tests.launch.faults import Faults, refused

GROUP = "/aws-ddp-toolkit/ec2"
# AWS takes no events older than two weeks, so the times are around now.
T = int(time.time() * 1000) - 600_000

Write = Callable[..., None]


@pytest.fixture
def write(aws: Aws) -> Write:
    """What CloudWatch gets of a node: write("demo", 0, (T, "epoch 1"))."""
    known: set[str] = set()

    def write(job: str, rank: int, *events: tuple[int, str]) -> None:
        stream = f"{job}/node-{rank}"
        if not known:
            aws.call("logs", "CreateLogGroup", {"logGroupName": GROUP})
        if stream not in known:
            aws.call("logs", "CreateLogStream", {"logGroupName": GROUP, "logStreamName": stream})
            known.add(stream)
        lines = [{"timestamp": at, "message": text} for at, text in events]
        aws.call("logs", "PutLogEvents", {"logGroupName": GROUP, "logStreamName": stream, "logEvents": lines})

    return write


def test_a_job_that_has_no_log_group_yet_has_no_lines_yet(aws: Aws) -> None:
    assert LogTail(aws, "demo").new_lines() == []
    assert LogTail(aws, "demo", node=1).new_lines() == []


def test_every_line_is_shown_once(aws: Aws, write: Write) -> None:
    tail = LogTail(aws, "demo")
    write("demo", 0, (T, "epoch 1"), (T + 1, "epoch 2"))
    assert tail.new_lines() == ["epoch 1", "epoch 2"]
    assert tail.new_lines() == []
    write("demo", 0, (T + 2, "epoch 3"))
    assert tail.new_lines() == ["epoch 3"]


def test_lines_of_several_nodes_are_ordered_by_time_and_carry_their_rank(aws: Aws, write: Write) -> None:
    write("demo", 0, (T, "a"), (T + 20, "c"))
    write("demo", 1, (T + 10, "b"), (T + 30, "d\n"))
    assert LogTail(aws, "demo").new_lines() == ["[0] a", "[1] b", "[0] c", "[1] d"]


def test_the_rank_stays_when_only_one_node_speaks(aws: Aws, write: Write) -> None:
    tail = LogTail(aws, "demo")
    write("demo", 0, (T, "a"))
    write("demo", 1, (T, "b"))
    tail.new_lines()
    write("demo", 0, (T + 1, "c"))
    assert tail.new_lines() == ["[0] c"]


def test_who_knows_of_several_nodes_sees_the_rank_from_the_first_line(aws: Aws, write: Write) -> None:
    write("demo", 0, (T, "a"))
    assert LogTail(aws, "demo", several=True).new_lines() == ["[0] a"]


def test_one_node_is_shown_alone_and_bare(aws: Aws, write: Write) -> None:
    for rank in (0, 1, 10):
        write("demo", rank, (T, f"from {rank}"))
    assert LogTail(aws, "demo", node=1, several=True).new_lines() == ["from 1"]


def test_another_job_whose_name_begins_alike_is_left_out(aws: Aws, write: Write) -> None:
    write("demo", 0, (T, "mine"))
    write("demo-2", 0, (T, "not mine"))
    assert LogTail(aws, "demo").new_lines() == ["mine"]


def test_a_line_that_arrives_late_is_still_shown(aws: Aws, write: Write) -> None:
    tail = LogTail(aws, "demo")
    write("demo", 0, (T + 90_000, "young"))
    assert tail.new_lines() == ["young"]
    write("demo", 1, (T, "old"))
    assert tail.new_lines() == ["[1] old"]


def test_long_followers_do_not_read_everything_again(account: Account, aws: Aws, write: Write) -> None:
    tail = LogTail(aws, "demo")
    write("demo", 0, (T, "a"), (T + 300_000, "b"))
    tail.new_lines()
    tail.new_lines()
    assert [asked["startTime"] for asked in account.asked("FilterLogEvents")] == [0, T + 180_000]


def test_lines_before_a_time_can_be_left_out(aws: Aws, write: Write) -> None:
    write("demo", 0, (T, "before"), (T + 5_000, "after"))
    since = datetime.fromtimestamp((T + 1_000) / 1000, UTC)
    assert LogTail(aws, "demo", since=since).new_lines() == ["after"]


def test_more_lines_than_a_page_holds_are_all_shown(aws: Aws, write: Write) -> None:
    write("demo", 0, *((T + number, f"line {number}") for number in range(9_000)))
    write("demo", 0, *((T + number, f"line {number}") for number in range(9_000, 12_000)))
    lines = LogTail(aws, "demo").new_lines()
    assert (len(lines), lines[0], lines[-1]) == (12_000, "line 0", "line 11999")


def test_an_error_of_aws_is_not_taken_for_an_empty_log(aws: Aws, faults: Faults) -> None:
    faults.on("FilterLogEvents", refused("AccessDeniedException", 400))
    with pytest.raises(AwsError, match="may not logs:FilterLogEvents"):
        LogTail(aws, "demo").new_lines()


def test_following_ends_after_the_last_node_and_with_its_last_words(aws: Aws, write: Write) -> None:
    said: list[str] = []
    write("demo", 0, (T, "epoch 1"))
    lives = iter([True, True, False, False, False, False, False])
    late = iter([0, 0, 1, 2])

    def sleep(seconds: float) -> None:
        if number := next(late, 0):
            write("demo", 0, (T + number, f"last word {number}"))

    follow(LogTail(aws, "demo"), lambda: next(lives), Clock(sleep=sleep), said.append)
    assert said == ["epoch 1", "last word 1", "last word 2"]


# ---- python -m launch.ec2 logs


@pytest.fixture
def terminal(account: Account) -> Terminal:
    return Terminal(account)


def test_the_logs_of_a_job_are_printed(terminal: Terminal, write: Write) -> None:
    terminal.start("demo")
    write("demo", 0, (T, "epoch 1"))
    assert terminal.type("logs", "demo") == 0
    assert terminal.said == ["epoch 1"]


def test_the_logs_of_a_job_without_a_trace_in_ec2_are_printed(terminal: Terminal, write: Write) -> None:
    write("demo", 0, (T, "epoch 1"))
    assert terminal.type("logs", "demo") == 0
    assert terminal.said == ["epoch 1"]


def test_a_running_job_of_two_nodes_marks_its_first_line(terminal: Terminal, write: Write) -> None:
    terminal.start("demo", nodes=2)
    write("demo", 0, (T, "epoch 1"))
    terminal.type("logs", "demo")
    assert terminal.said == ["[0] epoch 1"]


def test_only_the_last_minutes_are_shown_if_asked(terminal: Terminal, write: Write) -> None:
    terminal.start("demo")
    now = int(time.time() * 1000)  # T is older, if the test run takes long
    write("demo", 0, (now - 600_000, "ten minutes ago"), (now - 180_000, "three minutes ago"))
    terminal.type("logs", "demo", "--since", "5")
    assert terminal.said == ["three minutes ago"]
    terminal.type("logs", "demo", "--since", "1")
    assert terminal.said == ["no line of demo in the last 1 min"]


def test_a_job_is_followed_until_its_nodes_are_gone(terminal: Terminal, write: Write) -> None:
    (node,) = terminal.start("demo")
    write("demo", 0, (T, "epoch 1"))
    terminal.events = iter([lambda: write("demo", 0, (T + 1, "epoch 2")), lambda: terminal.account.kill(node)])
    assert terminal.type("logs", "demo", "-f") == 0
    assert terminal.said == [
        "epoch 1",
        "epoch 2",
        "demo has no nodes any more; how it went: python -m launch.ec2 status demo",
    ]


def test_following_a_job_that_is_over_shows_its_logs_and_waits_for_nothing(terminal: Terminal, write: Write) -> None:
    write("demo", 0, (T, "epoch 1"))
    assert terminal.type("logs", "demo", "--follow") == 0
    assert (terminal.said, terminal.later_s) == (["epoch 1"], 0)


def test_ctrl_c_ends_the_following_and_not_the_job(terminal: Terminal, write: Write) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    terminal.start("demo")
    terminal.events = iter([interrupt])
    assert terminal.type("logs", "demo", "--follow") == 130
    assert terminal.said[-1] == "the job goes on; end it with python -m launch.ec2 stop demo --region us-east-1"
    assert len(terminal.account.nodes) == 1


def test_without_any_log_the_place_of_the_boot_log_is_said(terminal: Terminal) -> None:
    terminal.start("demo")
    assert terminal.type("logs", "demo") == 0
    assert terminal.said == [
        "there are no logs of demo: a node writes them once its container starts.  How it booted, it tells when it "
        "ends: aws s3 sync s3://aws-ddp-toolkit-123456789012-us-east-1/jobs/demo/boot/ boot --region us-east-1"
    ]


def test_a_node_that_the_job_does_not_have_is_told_from_those_it_has(terminal: Terminal, write: Write) -> None:
    terminal.start("demo", nodes=2)
    write("demo", 0, (T, "a"))
    error = terminal.refused("logs", "job", "demo", "node", "2")
    assert (error.code, str(error)) == (2, "--node 2: demo has nodes 0, 1.")
    assert terminal.type("logs", "demo", "--node", "1") == 0
    assert terminal.text.startswith("there are no logs of demo: ")


def test_the_logs_of_a_job_that_never_was_are_refused_with_the_nearest_name(terminal: Terminal) -> None:
    terminal.start("demo-1")
    error = terminal.refused("logs", "job", "demo-l")
    assert str(error).startswith("no job 'demo-l' in us-east-1; did you mean 'demo-1'? There are: demo-1. ")
    assert error.code == 2
