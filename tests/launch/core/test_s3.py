"""launch.core.s3: places in S3, read and written."""

import pytest

from launch.core.s3 import S3Uri, parse_s3


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("s3://my-bucket/a/b.txt", S3Uri("my-bucket", "a/b.txt")),
        ("s3://my-bucket/folder/", S3Uri("my-bucket", "folder/")),
        ("s3://my.bucket", S3Uri("my.bucket")),
        ("s3://my-bucket/", S3Uri("my-bucket")),
    ],
)
def test_a_place_is_its_bucket_and_its_key(uri: str, place: S3Uri) -> None:
    assert parse_s3(uri) == place


@pytest.mark.parametrize("uri", ["", "bucket/key", "s3:/bucket/key", "s3://", "s3:///key", "s3://Bucket/key", "s3://a"])
def test_what_names_no_bucket_is_no_place(uri: str) -> None:
    assert parse_s3(uri) is None


def test_a_place_is_written_as_it_is_read() -> None:
    assert str(S3Uri("my-bucket", "a/b")) == "s3://my-bucket/a/b"
