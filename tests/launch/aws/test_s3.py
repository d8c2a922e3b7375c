"""launch.aws.names: places in S3, read and written."""

import pytest

from launch.aws.names import S3Uri, is_path, parse_s3


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


@pytest.mark.parametrize("name", ["", "/etc/passwd", "..", "a/../../b", "a//b", "./a", "a/", "a/\0"])
def test_a_key_that_leads_elsewhere_is_no_path_below_a_folder(name: str) -> None:
    assert not is_path(name)


@pytest.mark.parametrize("name", ["a", "a/b.txt", "..a/b..", "a b/\u00e4", ".hidden"])
def test_any_other_is_one(name: str) -> None:
    assert is_path(name)
