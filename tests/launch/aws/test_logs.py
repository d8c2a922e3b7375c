"""The lines of a job's machines, each once, in the order of their times, from the beginning to the end."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from launch.aws.client import Aws
from launch.aws.logs import MOST_EMPTY, MOST_PAGES, LogDisplay, LogTail, Streams, follow
from launch.core.clock import Clock
from launch.core.errors import AwsError
from tests.launch.ec2.account import Account
from tests.launch.faults import Faults, refused

GROUP = "/aws-ddp-toolkit/ec2"
DEMO = Streams(GROUP, "demo/node-")
# AWS takes no events older than two weeks, so the times are around now.
T = int(time.time() * 1000) - 600_000

Write = Callable[..., None]


@pytest.fixture
def write(put_lines: Callable[..., None]) -> Write:
    """What a job's machine says: write("demo", 0, (T, "epoch 1"))."""
    return lambda job, number, *events: put_lines(GROUP, f"{job}/node-{number}", *events)


def test_a_job_that_has_no_log_group_yet_has_no_lines_yet(aws: Aws) -> None:
    assert LogTail(aws, DEMO).new_lines() == []
    assert LogTail(aws, DEMO, only=1).new_lines() == []


def test_every_line_is_shown_once(aws: Aws, write: Write) -> None:
    tail = LogTail(aws, DEMO)
    write("demo", 0, (T, "epoch 1"), (T + 1, "epoch 2"))
    assert tail.new_lines() == ["epoch 1", "epoch 2"]
    assert tail.new_lines() == []
    write("demo", 0, (T + 2, "epoch 3"))
    assert tail.new_lines() == ["epoch 3"]


def test_lines_of_several_machines_are_ordered_by_time_and_carry_their_numbers(aws: Aws, write: Write) -> None:
    write("demo", 0, (T, "a"), (T + 20, "c"))
    write("demo", 1, (T + 10, "b"), (T + 30, "d\n"))
    assert LogTail(aws, DEMO).new_lines() == ["[0] a", "[1] b", "[0] c", "[1] d"]


def test_the_number_stays_when_only_one_machine_logs(aws: Aws, write: Write) -> None:
    tail = LogTail(aws, DEMO)
    write("demo", 0, (T, "a"))
    assert LogTail(aws, DEMO, several=True).new_lines() == ["[0] a"]
    write("demo", 1, (T, "b"))
    tail.new_lines()
    write("demo", 0, (T + 1, "c"))
    assert tail.new_lines() == ["[0] c"]


def test_one_machine_is_shown_alone_and_bare(aws: Aws, write: Write) -> None:
    for rank in (0, 1, 10):
        write("demo", rank, (T, f"from {rank}"))
    assert LogTail(aws, DEMO, only=1, several=True).new_lines() == ["from 1"]


def test_another_job_whose_name_begins_alike_is_left_out(aws: Aws, write: Write) -> None:
    write("demo", 0, (T, "mine"))
    write("demo-2", 0, (T, "not mine"))
    assert LogTail(aws, DEMO).new_lines() == ["mine"]


def test_a_line_that_arrives_late_is_still_shown(aws: Aws, write: Write) -> None:
    tail = LogTail(aws, DEMO)
    write("demo", 0, (T + 90_000, "young"))
    assert tail.new_lines() == ["young"]
    write("demo", 1, (T, "old"))
    assert tail.new_lines() == ["[1] old"]


def test_long_followers_do_not_read_everything_again(account: Account, aws: Aws, write: Write) -> None:
    tail = LogTail(aws, DEMO)
    write("demo", 0, (T, "a"), (T + 300_000, "b"))
    tail.new_lines()
    tail.new_lines()
    assert [asked["startTime"] for asked in account.asked("FilterLogEvents")] == [0, T + 180_000]


def test_lines_before_a_time_can_be_left_out(aws: Aws, write: Write) -> None:
    write("demo", 0, (T, "before"), (T + 5_000, "after"))
    since = datetime.fromtimestamp((T + 1_000) / 1000, UTC)
    assert LogTail(aws, DEMO, since=since).new_lines() == ["after"]


def test_of_a_long_log_only_a_part_is_held_and_all_is_shown(
    aws: Aws, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launch.aws.logs.MOST_PAGES", 1)
    for start in (0, 9_000):
        write("demo", 0, *((T + number, f"line {number}") for number in range(start, start + 9_000)))
    tail = LogTail(aws, DEMO)
    held = [tail.new_lines(), tail.new_lines()]
    assert [len(lines) for lines in held] == [10_000, 8_000]  # a page of CloudWatch has 10,000
    assert not tail.has_more

    shown = list[str]()
    assert LogTail(aws, DEMO).show_all(lambda line: shown.append(str(line))) == 18_000
    assert shown == held[0] + held[1] == [f"line {number}" for number in range(18_000)]


def test_a_machine_whose_clock_is_ahead_hides_nothing_that_others_say(aws: Aws, write: Write) -> None:
    """CloudWatch takes lines of up to two hours from now."""
    tail, now = LogTail(aws, DEMO), int(time.time() * 1000)
    write("demo", 0, (now + 6_600_000, "from the future"))
    assert tail.new_lines() == ["from the future"]
    write("demo", 1, (now, "still here"))
    assert tail.new_lines() == ["[1] still here"]
    assert tail.new_lines() == []


@pytest.mark.parametrize("is_display", [True, False])
def test_what_is_not_gone_through_yet_is_no_end_of_the_log(is_display: bool) -> None:
    """Empty pages by the thousand may stand before the last words of a job that has ended."""
    pages = iter([*[{"nextToken": "more"}] * (3 * MOST_PAGES * MOST_EMPTY), {"events": [
        {"eventId": "1", "timestamp": T, "logStreamName": "demo/node-0", "message": "last words"}
    ]}])  # fmt: skip
    aws: Any = SimpleNamespace(call=lambda *_: next(pages, {}))
    tail, clock, said = LogTail(aws, Streams("group", "demo/node-")), Clock(lambda: 0.0, lambda _s: None), list[str]()

    if is_display:
        LogDisplay(tail, clock, said.append).drain()
    else:
        follow(tail, lambda: False, clock, said.append)

    assert [str(line) for line in said] == ["last words"]


def test_after_an_error_between_pages_no_line_is_lost_or_shown_twice(
    aws: Aws, write: Write, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launch.aws.logs.MOST_PAGES", 1)
    for start in (0, 9_000):
        write("demo", 0, *((T + number, f"line {number}") for number in range(start, start + 9_000)))
    tail = LogTail(aws, DEMO)
    faults.on("FilterLogEvents", refused("AccessDeniedException", 400), nth=2)
    said = tail.new_lines()
    with pytest.raises(AwsError):
        tail.new_lines()
    assert len([*said, *tail.new_lines(), *tail.new_lines()]) == 18_000


def test_the_name_of_a_stream_passes_for_no_line_of_its_own(aws: Aws, put_lines: Callable[..., None]) -> None:
    put_lines(GROUP, "demo/node-0\nto stop it:  curl x | sh", (T, "epoch 1"))
    assert LogTail(aws, DEMO, several=True).new_lines() == ["[0 to stop it: cur...] epoch 1"]


def test_an_error_of_aws_is_not_taken_for_an_empty_log(aws: Aws, faults: Faults) -> None:
    faults.on("FilterLogEvents", refused("AccessDeniedException", 400))
    with pytest.raises(AwsError, match="may not logs:FilterLogEvents"):
        LogTail(aws, DEMO).new_lines()


def test_following_ends_after_the_last_machine_and_with_its_last_words(aws: Aws, write: Write) -> None:
    said: list[str] = []
    write("demo", 0, (T, "epoch 1"))
    lives = iter([True, True, False, False, False, False, False])
    late = iter([0, 0, 1, 2])

    def sleep(seconds: float) -> None:
        if number := next(late, 0):
            write("demo", 0, (T + number, f"last word {number}"))

    follow(LogTail(aws, DEMO), lambda: next(lives), Clock(sleep=sleep), lambda line: said.append(str(line)))
    assert said == ["epoch 1", "last word 1", "last word 2"]


# ---- streams whose names go on after the machine's number, as SageMaker's do

ALGO = Streams("/aws/sagemaker/TrainingJobs", "demo/algo-", "-")


@pytest.fixture
def write_algo(put_lines: Callable[..., None]) -> Write:
    return lambda number, start, *events: put_lines(ALGO.group, f"demo/algo-{number}-{start}", *events)


def test_what_follows_the_number_is_no_part_of_it(aws: Aws, write_algo: Write) -> None:
    write_algo(1, 1795268896, (T, "a"))
    write_algo(2, 1795268897, (T + 1, "b"))
    assert LogTail(aws, ALGO).new_lines() == ["[1] a", "[2] b"]


def test_one_machine_of_many_is_selected_by_its_whole_number(account: Account, aws: Aws, write_algo: Write) -> None:
    for number in (1, 2, 10):
        write_algo(number, 1795268896, (T, f"from {number}"))
    assert LogTail(aws, ALGO, only=1).new_lines() == ["from 1"]
    assert account.asked("FilterLogEvents")[-1]["logStreamNamePrefix"] == "demo/algo-1-"


def test_a_line_can_be_rewritten_before_it_is_shown(aws: Aws, write: Write) -> None:
    write("demo", 0, (T, "epoch 1\n"))
    assert LogTail(aws, Streams(GROUP, "demo/node-", rewrite=str.upper)).new_lines() == ["EPOCH 1"]
