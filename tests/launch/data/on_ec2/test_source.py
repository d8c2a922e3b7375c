"""What is found in S3, page by page."""

from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import pytest

from launch.aws.client import Aws
from launch.data.pool import Pool
from launch.data.source import Copying, Item, Source, find_source, is_archived
from trainer.errors import SettingsError


class Listing:
    """ListObjectsV2, two keys a page.

    https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html: in the order of their bytes; IsTruncated,
    NextContinuationToken.
    """

    def __init__(self, *keys: str) -> None:
        self.keys, self.listed = sorted(keys, key=str.encode), list[str]()

    def call(self, service: str, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        assert (service, operation) == ("s3", "ListObjectsV2")
        found = [key for key in self.keys if key.startswith(params["Prefix"])]
        at, size = int(params.get("ContinuationToken", "0")), params.get("MaxKeys", 2)
        page = found[at : at + size]
        self.listed += page
        answer: dict[str, Any] = {"Contents": [{"Key": key, "Size": 1, "ETag": "e"} for key in page]}
        is_last = at + size >= len(found)
        return answer | {"IsTruncated": not is_last} | ({} if is_last else {"NextContinuationToken": str(at + size)})


def found(listing: Listing, source: str) -> tuple[list[str], bool]:
    there = find_source(cast("Aws", listing), source)
    return [item.name for item in there.items], there.is_object


def test_every_page_of_a_folder_is_read_and_nothing_beside_it() -> None:
    beside = [f"photos-old/{number}" for number in range(9)]
    listing = Listing("photos/", *(f"photos/{name}" for name in "abcde"), *beside)

    assert found(listing, "s3://bucket/photos") == (list("abcde"), False)
    assert len(listing.listed) == 1 + 6  # a key, then the folder's


def test_an_object_is_told_from_a_folder_of_the_same_beginning() -> None:
    listing = Listing("images.tar", "images.tar.md5", "images.tar/a")
    assert found(listing, "s3://bucket/images.tar") == (["images.tar"], True)
    with pytest.raises(SettingsError, match="nothing in s3://bucket/images"):
        found(listing, "s3://bucket/images")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"StorageClass": "STANDARD"}, False),
        ({"StorageClass": "GLACIER_IR"}, False),  # which is read like any other
        ({"StorageClass": "DEEP_ARCHIVE"}, True),
        ({"StorageClass": "GLACIER", "RestoreStatus": {"IsRestoreInProgress": True}}, True),
        ({"StorageClass": "GLACIER", "RestoreStatus": {"IsRestoreInProgress": False}}, False),
    ],
    ids=["ordinary", "instant", "archived", "being restored", "restored"],
)
def test_what_is_archived_must_be_restored(row: dict[str, Any], expected: bool) -> None:
    """https://docs.aws.amazon.com/AmazonS3/latest/API/API_RestoreStatus.html"""
    assert is_archived(row) is expected


class Bucket:
    """GetObject of these contents, the last part first."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self.contents = contents

    def call(self, service: str, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        assert (service, operation) == ("s3", "GetObject")
        return {"Body": BytesIO(self.contents[params["Key"]])}

    def each(self, parts: Iterable[Any], act: Callable[[Any], None]) -> None:
        for part in reversed(list(parts)):
            act(part)


def copied(contents: Mapping[str, bytes], folder: Path) -> Path:
    items = tuple(Item(name, name, len(content), "etag") for name, content in contents.items())
    source = Source("s3://bucket", "bucket", items)
    return Copying(cast("Pool", Bucket(contents)), source, folder, lambda _done, _of: None).copy()


def test_no_object_is_written_over_by_the_unfinished_copy_of_another(tmp_path: Path) -> None:
    contents = {"a": b"of a", ".a.partial": b"beside a", "a.partial/a": b"in a folder"}
    folder = copied(contents, tmp_path / "source")

    assert {name: (folder / name).read_bytes() for name in contents} == contents
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
