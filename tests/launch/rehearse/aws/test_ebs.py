"""The EBS direct APIs of the embedded AWS refuse what AWS refuses.

https://docs.aws.amazon.com/ebs/latest/APIReference/API_PutSnapshotBlock.html, API_CompleteSnapshot.html and
API_StartSnapshot.html; https://docs.aws.amazon.com/ebs/latest/userguide/ebsapi-faq.html
"""

import base64
import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from launch.aws.client import Aws
from launch.core.errors import AwsError
from tests.launch.ec2.account import Account

BLOCK = 512 * 1024
TAG = [{"Key": "aws-ddp-toolkit:dataset", "Value": "photos"}]


@pytest.fixture
def aws() -> Iterator[Aws]:
    with Account.opened() as account:
        yield account.aws()


def start(aws: Aws, token: str = "t", **more: Any) -> str:
    asked = {"VolumeSize": 1, "ClientToken": token, "Encrypted": True, "Tags": TAG, **more}
    return str(aws.call("ebs", "StartSnapshot", asked)["SnapshotId"])


def put(aws: Aws, snapshot: str, index: int = 0, **more: Any) -> None:
    data = more.pop("data", b"\x01" * BLOCK)
    asked = {"SnapshotId": snapshot, "BlockIndex": index, "BlockData": data, "DataLength": len(data),
             "Checksum": checksum(data), "ChecksumAlgorithm": "SHA256", **more}  # fmt: skip
    aws.call("ebs", "PutSnapshotBlock", asked)


def complete(aws: Aws, snapshot: str, count: int, **more: Any) -> None:
    aws.call("ebs", "CompleteSnapshot", {"SnapshotId": snapshot, "ChangedBlocksCount": count, **more})


def checksum(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def state(aws: Aws, snapshot: str) -> str:
    return str(aws.call("ec2", "DescribeSnapshots", {"SnapshotIds": [snapshot]})["Snapshots"][0]["State"])


def refusal(act: Any, *words: Any, **more: Any) -> str:
    with pytest.raises(AwsError) as refused:
        act(*words, **more)
    return refused.value.aws_code


@pytest.mark.parametrize(
    "wrong",
    [
        {"data": b"\x01" * 512},
        {"DataLength": 512},
        {"Checksum": checksum(b"something else")},
        {"index": 2048},  # the first block behind a volume of 1 GiB
    ],
)
def test_a_block_is_whole_inside_the_volume_and_has_its_checksum(wrong: dict[str, Any], aws: Aws) -> None:
    assert refusal(put, aws, start(aws), **wrong) == "ValidationException"


def test_a_snapshot_is_pending_until_it_is_completed_with_the_right_count(aws: Aws) -> None:
    snapshot = start(aws)
    put(aws, snapshot)
    put(aws, snapshot)  # over the same one
    put(aws, snapshot, 7)
    assert state(aws, snapshot) == "pending"
    assert refusal(aws.call, "ebs", "ListSnapshotBlocks", {"SnapshotId": snapshot}) == "ValidationException"
    assert refusal(complete, aws, snapshot, 3) == "ValidationException"

    complete(aws, snapshot, 2)
    assert refusal(put, aws, snapshot, 8) == "ValidationException"
    assert [state(aws, snapshot) for _ in range(2)] == ["pending", "completed"]
    blocks = aws.call("ebs", "ListSnapshotBlocks", {"SnapshotId": snapshot})
    assert [row["BlockIndex"] for row in blocks["Blocks"]] == [0, 7]
    assert blocks["BlockSize"] == BLOCK


def test_the_checksum_of_a_snapshot_is_that_of_the_blocks_checksums(aws: Aws) -> None:
    """LINEAR: over their bytes in the order of the blocks, as AWS's own coldsnap does it."""
    snapshot = start(aws)
    put(aws, snapshot)
    whole = {"ChecksumAlgorithm": "SHA256", "ChecksumAggregationMethod": "LINEAR"}
    assert refusal(complete, aws, snapshot, 1, Checksum=checksum(b"other"), **whole) == "ValidationException"

    digest = hashlib.sha256(b"\x01" * BLOCK).digest()
    complete(aws, snapshot, 1, Checksum=checksum(digest), **whole)


def test_a_client_token_identifies_one_request(aws: Aws) -> None:
    assert start(aws) == start(aws) != start(aws, "another")
    assert refusal(start, aws, VolumeSize=2) == "ConflictException"


def test_a_block_is_read_with_its_own_token_only(aws: Aws) -> None:
    snapshot = start(aws)
    put(aws, snapshot)
    complete(aws, snapshot, 1)
    while state(aws, snapshot) != "completed":
        pass
    asked = {"SnapshotId": snapshot, "BlockIndex": 0, "BlockToken": "invented"}

    assert refusal(aws.call, "ebs", "GetSnapshotBlock", asked) == "ValidationException"
    (row,) = aws.call("ebs", "ListSnapshotBlocks", {"SnapshotId": snapshot})["Blocks"]
    found = aws.call("ebs", "GetSnapshotBlock", {**asked, "BlockToken": row["BlockToken"]})
    assert found["BlockData"].read() == b"\x01" * BLOCK


def test_what_does_not_exist_is_not_found(aws: Aws) -> None:
    assert refusal(put, aws, "snap-0123456789abcdef0") == "ResourceNotFoundException"
