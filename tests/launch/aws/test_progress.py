"""How far a training is: read from its folder, whatever state that is in."""

import json
from collections.abc import Mapping

import pytest

from launch.aws.client import Aws
from launch.aws.names import Folder
from launch.aws.progress import in_words, newest, pace, pace_in_words, records
from launch.core.errors import AwsError
from tests.launch.ec2.account import Account
from tests.launch.faults import Faults, refused
from trainer.script.pace import Pace

FOLDER = Folder(Account.bucket, "j")
KEY = "jobs/j/run/metrics.jsonl"
EPOCH = {"epoch": 1, "train_loss": 2.30256, "train_top1": 0.1, "images_per_s": 2931.7, "epoch_s": 12.25}


def put(aws: Aws, *lines: str) -> None:
    aws.call("s3", "PutObject", {"Bucket": Account.bucket, "Key": KEY, "Body": "".join(lines).encode()})


def test_without_a_file_or_a_bucket_there_are_no_records_yet(aws: Aws) -> None:
    assert records(aws, FOLDER) == []
    assert newest(aws, FOLDER) is None
    assert records(aws, Folder("no-such-bucket", "j")) == []


def test_every_line_is_a_record_in_the_order_of_the_file(aws: Aws) -> None:
    put(aws, *(json.dumps({**EPOCH, "epoch": epoch}) + "\n" for epoch in (1, 2, 3)))
    assert [record["epoch"] for record in records(aws, FOLDER)] == [1, 2, 3]
    found = newest(aws, FOLDER)
    assert found is not None
    assert found["epoch"] == 3


@pytest.mark.parametrize(
    "end", [b'{"epoch": 2, "train', b'{"epoch": 2, "train_loss": 1.', b"\n", b"", b"\xff\xfe\x00\n"]
)
def test_a_line_that_was_cut_off_is_left_out(aws: Aws, end: bytes) -> None:
    body = json.dumps(EPOCH).encode() + b"\n" + end
    aws.call("s3", "PutObject", {"Bucket": Account.bucket, "Key": KEY, "Body": body})
    assert records(aws, FOLDER) == [EPOCH]


def test_a_file_that_may_not_be_read_is_an_error(aws: Aws, faults: Faults) -> None:
    faults.on("GetObject", refused("AccessDenied", 403), nth=None)
    with pytest.raises(AwsError, match="these credentials may not s3:GetObject"):
        records(aws, FOLDER)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "epoch 1/5, loss 2.3026, accuracy 10.0%, 2,932 images/s, 12.2 s"),
        ({"eval_top1": 0.4567}, "epoch 1/5, loss 2.3026, accuracy 10.0%, eval accuracy 45.7%, 2,932 images/s, 12.2 s"),
        ({"train_loss": None, "eval_top1": None}, "epoch 1/5, accuracy 10.0%, 2,932 images/s, 12.2 s"),
    ],
)
def test_a_record_is_described_without_values_that_are_not_numbers(more: Mapping[str, object], words: str) -> None:
    assert in_words({**EPOCH, **more}, "5") == words


PACE = Pace(done=0.4, since=0.0, seconds=2400.0, at=1000.0)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (1000.0, "40% done, about 1.0 h left at its pace"),
        (2800.0, "40% done, about 30 min left at its pace"),
        (900.0, "40% done, about 1.0 h left at its pace"),  # clocks differ
        (9999.0, "40% done"),  # it has become slower, or hangs
        (None, "40% done"),
    ],
)
def test_a_scripts_remaining_time_follows_from_its_pace(now: float | None, words: str) -> None:
    assert pace_in_words(PACE, now) == words


def test_our_trainer_has_no_pace_and_none_is_read(aws: Aws, faults: Faults) -> None:
    faults.on("GetObject", refused("AccessDenied", 403), nth=None)

    assert pace(aws, FOLDER, EPOCH) is None
    assert pace(aws, FOLDER, None) is None
