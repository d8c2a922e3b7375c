"""What a rehearsal came to."""

from dataclasses import replace

import pytest

from launch.rehearse.aws.server import Seen
from launch.rehearse.receipt.facts import Requests, kinds, requests, spans
from tests.launch.rehearse.receipts import RECEIPT


def test_a_phase_lasts_until_the_next_that_began() -> None:
    assert spans([0.0, 2.0, 5.0], end=9.0) == [2.0, 3.0, 4.0]


def test_a_phase_that_never_began_took_no_time() -> None:
    assert spans([0.0, None, 5.0, None], end=9.0) == [5.0, 0.0, 4.0, 0.0]


def test_resources_are_counted_by_kind() -> None:
    assert kinds({"instance i-1", "instance i-2", "security group sg-1"}) == {"instance": 2, "security group": 1}


def test_requests_are_counted_by_name_and_by_whom() -> None:
    seen = [
        Seen(11.0, 0.1, True, "s3", "GetObject", "/job.json", 404),
        Seen(12.0, 0.1, True, "s3", "GetObject", "/job.json", 200),
        Seen(13.0, 0.1, False, "s3", "PutObject", "/log", 503),
    ]

    assert requests(seen, began=10.0) == [
        Requests("s3:GetObject", True, (1.0, 2.0), {404: 1}),
        Requests("s3:PutObject", False, (3.0,), {503: 1}),
    ]


@pytest.mark.parametrize(
    ("name", "wrote"),
    [
        ("ec2:DescribeInstances", False), ("s3:HeadBucket", False), ("logs:FilterLogEvents", False),
        ("ec2:RunInstances", True), ("sagemaker:CreateTrainingJob", True), ("s3:?", True),
    ],
)  # fmt: skip
def test_a_request_reads_or_writes(name: str, wrote: bool) -> None:
    assert Requests(name, True, (1.0,)).wrote == wrote


def test_a_replacement_is_not_one_node_more_at_a_time() -> None:
    assert len(RECEIPT.nodes) == 3
    assert RECEIPT.at_a_time == 2


@pytest.mark.parametrize(
    ("code", "trouble", "outcome"),
    [(0, "", "done"), (130, "", "stopped by Ctrl-C"), (9, "", "failed: exit code 9"),
     (0, "no loop device", "the rehearsal itself failed")],
)  # fmt: skip
def test_the_outcome_is_in_words(code: int, trouble: str, outcome: str) -> None:
    assert replace(RECEIPT, code=code, trouble=trouble).outcome == outcome
