"""launch.rehearse.receipt.facts: what a rehearsal measured."""

from dataclasses import replace

import pytest

from launch.rehearse.aws.server import Request
from launch.rehearse.receipt.facts import RequestGroup, count_kinds, group_requests, spans
from launch.rehearse.receipt.text import as_text
from tests.launch.rehearse.receipt.receipts import RECEIPT


def test_a_phase_lasts_until_the_next_that_began() -> None:
    assert spans([0.0, 2.0, 5.0], end=9.0) == [2.0, 3.0, 4.0]


def test_a_phase_that_never_began_took_no_time() -> None:
    assert spans([0.0, None, 5.0, None], end=9.0) == [5.0, 0.0, 4.0, 0.0]


def test_resources_are_counted_by_kind() -> None:
    assert count_kinds({"instance i-1", "instance i-2", "security group sg-1"}) == {"instance": 2, "security group": 1}


def test_requests_are_counted_by_name_and_by_whom() -> None:
    made = [
        Request(11.0, 0.1, True, "s3", "GetObject", "/job.json", 404),
        Request(12.0, 0.1, True, "s3", "GetObject", "/job.json", 200),
        Request(13.0, 0.1, False, "s3", "PutObject", "/log", 503),
    ]

    assert group_requests(made, began=10.0) == [
        RequestGroup("s3:GetObject", True, (1.0, 2.0), {404: 1}),
        RequestGroup("s3:PutObject", False, (3.0,), {503: 1}),
    ]


@pytest.mark.parametrize(
    ("name", "is_write"),
    [
        ("ec2:DescribeInstances", False), ("s3:HeadBucket", False), ("logs:FilterLogEvents", False),
        ("ec2:RunInstances", True), ("sagemaker:CreateTrainingJob", True), ("s3:?", True),
    ],
)  # fmt: skip
def test_a_request_reads_or_writes(name: str, is_write: bool) -> None:
    assert RequestGroup(name, True, (1.0,)).is_write == is_write


def test_a_replacement_is_not_counted_beside_the_node_that_it_replaces() -> None:
    assert len(RECEIPT.nodes) == 3
    assert RECEIPT.most_nodes == 2


@pytest.mark.parametrize(
    ("code", "trouble", "outcome"),
    [(0, "", "done"), (130, "", "stopped by Ctrl-C"), (9, "", "failed: exit code 9"),
     (0, "no loop device", "the rehearsal itself failed")],
)  # fmt: skip
def test_the_outcome_is_in_words(code: int, trouble: str, outcome: str) -> None:
    assert replace(RECEIPT, code=code, trouble=trouble).outcome == outcome


def test_machines_have_a_zone_only_where_aws_shows_it() -> None:
    node = RECEIPT.nodes[0]
    receipt = replace(RECEIPT, nodes=[node, node, replace(node, type="ml.g5.2xlarge", zone="")])

    assert receipt.machines == ["g5.2xlarge in us-east-1a", "ml.g5.2xlarge"]


def test_the_receipt_names_the_region_whose_prices_it_counts_with() -> None:
    """It said us-east-1 wherever the nodes were."""
    node = RECEIPT.nodes[0]
    far = replace(RECEIPT, nodes=[replace(node, zone="eu-central-1b")])
    assert far.regions == "eu-central-1"
    assert "on demand in eu-central-1" in as_text(far)
    assert replace(RECEIPT, place="eu-west-1; nodes: x", nodes=[replace(node, zone="")]).regions == "eu-west-1"
    assert replace(far, nodes=[*far.nodes, node]).regions == "eu-central-1, us-east-1"
