"""launch.data.source: what is listed in S3, page by page, and copied to this machine."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import pytest

from launch.aws.client import Aws
from launch.data.pool import Pool
from launch.data.source import Copying, Item, Source, find_source, is_archived
from tests.launch.data.on_ec2.desk import NAME, Ec2Desk, opened
from trainer.errors import SettingsError


class Listing:
    """ListObjectsV2, two keys a page.

    https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html: in the order of their bytes; IsTruncated,
    NextContinuationToken.
    """

    def __init__(self, *keys: str) -> None:
        self.keys = sorted(keys, key=str.encode)

    def call(self, _service: str, _operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        found = [key for key in self.keys if key.startswith(params["Prefix"])]
        at, size = int(params.get("ContinuationToken", "0")), params.get("MaxKeys", 2)
        rows = [{"Key": key, "Size": 1, "ETag": "e"} for key in found[at : at + size]]
        is_last = at + size >= len(found)
        more = {} if is_last else {"NextContinuationToken": str(at + size)}
        return {"Contents": rows, "IsTruncated": not is_last, **more}


@pytest.mark.parametrize(
    ("keys", "source", "names", "is_object"),
    [
        (
            ["photos/", "photos/a", "photos/b", "photos/c", "photos-old/1", "photos-old/2"],
            "photos",
            "abc",
            False,
        ),
        (["images.tar", "images.tar.md5", "images.tar/a"], "images.tar", ["images.tar"], True),
    ],
    ids=["folder", "object"],
)
def test_every_page_is_read_and_nothing_beside_it(
    keys: list[str], source: str, names: Iterable[str], is_object: bool
) -> None:
    found = find_source(cast("Aws", Listing(*keys)), f"s3://bucket/{source}")
    assert ([item.name for item in found.items], found.is_object) == ([*names], is_object)


def test_the_beginning_of_a_name_is_no_source() -> None:
    with pytest.raises(SettingsError, match="nothing in s3://bucket/images"):
        find_source(cast("Aws", Listing("images.tar")), "s3://bucket/images")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"StorageClass": "STANDARD"}, False),
        ({"StorageClass": "GLACIER_IR"}, False),  # which is read like any other
        ({"StorageClass": "DEEP_ARCHIVE"}, True),
        ({"StorageClass": "GLACIER", "RestoreStatus": {"IsRestoreInProgress": True}}, True),
        ({"StorageClass": "GLACIER", "RestoreStatus": {"IsRestoreInProgress": False}}, False),
    ],
)
def test_an_archived_object_must_be_restored(row: dict[str, Any], expected: bool) -> None:
    """https://docs.aws.amazon.com/AmazonS3/latest/API/API_RestoreStatus.html"""
    assert is_archived(row) is expected


class Bucket:
    """GetObject of these contents, the last part first."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self.contents = contents

    def call(self, _service: str, _operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        return {"Body": BytesIO(self.contents[params["Key"]])}

    def each(self, parts: Iterable[Any], act: Callable[[Any], None]) -> None:
        for part in reversed(list(parts)):
            act(part)


def test_no_object_is_written_over_by_the_unfinished_copy_of_another(tmp_path: Path) -> None:
    contents = {"a": b"of a", ".a.partial": b"beside a", "a.partial/a": b"in a folder"}
    items = tuple(Item(name, name, len(content), "etag") for name, content in contents.items())
    source = Source("s3://bucket", "bucket", items)
    folder = Copying(cast("Pool", Bucket(contents)), source, tmp_path / "source", lambda _done, _of: None).copy()

    assert {name: (folder / name).read_bytes() for name in contents} == contents
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


# ---- launch.data publish s3://... --by here


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ec2Desk]:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with opened(tmp_path) as desk:
        yield desk


def test_from_here_the_source_is_copied_first(desk: Ec2Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launch.data.source.PART", 300_000)  # the largest file comes in three parts
    assert desk.publish_s3("--dry-run", by="here") == 0
    assert not any(Path().iterdir())

    assert desk.publish_s3("--to", "s3", by="here") == 0, desk.text
    for path in desk.folder.rglob("*.*"):
        assert Path(f"{NAME}-source", path.relative_to(desk.folder)).read_bytes() == path.read_bytes()
    assert desk.record["state"] == "published"

    since = len(desk.account.requests)
    assert desk.publish_s3("--to", "s3", by="here") == 0, desk.text  # nothing is fetched twice
    keys = [call.params["Key"] for call in desk.account.requests[since:] if call.operation == "GetObject"]
    assert not [key for key in keys if key.startswith("sources/")]


def test_a_name_that_leads_out_of_the_folder_is_not_written(desk: Ec2Desk) -> None:
    desk.account.put(desk.account.bucket, f"sources/{NAME}/../../gotcha", b"1")
    assert desk.publish_s3("--to", "s3", by="here") == 3
    assert not any(Path().iterdir())
