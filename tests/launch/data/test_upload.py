"""Files and blocks are checked once more as they are sent."""

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launch.data import upload
from launch.data.image import BLOCK, Blocks
from launch.data.prepared import File
from launch.data.snapshot import State, Writer
from launch.data.upload import Place, Uploader
from trainer.errors import DataError

MEANT = b"as it was prepared"


class Requests:
    """Answers every request, and keeps its name."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def call(self, _service: str, operation: str, *_: object) -> dict[str, str]:
        self.made.append(operation)
        return {"UploadId": "u", "ETag": "e"}

    def each(self, things: list[int], act: Any) -> None:
        for one in things:
            act(one)


@pytest.mark.parametrize(("content", "is_sent"), [(MEANT, True), (MEANT.upper(), False)])
@pytest.mark.parametrize(("part", "last"), [(1000, "PutObject"), (4, "CompleteMultipartUpload")])
def test_a_file_that_has_changed_is_not_sent(
    content: bytes, is_sent: bool, part: int, last: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "PART", part)
    (tmp_path / "0.tar").write_bytes(content)
    requests: Any = Requests()
    file = File("0.tar", len(MEANT), hashlib.sha256(MEANT).hexdigest())
    uploader = Uploader(requests, Place("b", "data/photos/", "123456789012"), lambda _: None)

    if is_sent:
        uploader.upload(tmp_path / "0.tar", file)
    else:
        with pytest.raises(DataError, match="has changed since it was prepared"):
            uploader.upload(tmp_path / "0.tar", file)

    assert (last in requests.made) == is_sent


@pytest.mark.parametrize(
    ("size", "digest", "is_same"),
    [
        (len(MEANT), hashlib.sha256(MEANT).hexdigest(), True),
        (len(MEANT), "0" * 64, False),
        (1, None, False),
        (len(MEANT), None, False),
    ],
)
def test_an_object_in_s3_is_the_same_only_with_its_digest(size: int, digest: str | None, is_same: bool) -> None:
    head = {"Metadata": {"sha256": digest} if digest else {}}
    aws: Any = SimpleNamespace(call=lambda *_: head)
    file = File("0.tar", len(MEANT), hashlib.sha256(MEANT).hexdigest())
    assert upload.is_same(aws, Place("b", "data/photos/", "123456789012"), file, {"0.tar": size}) == is_same


@pytest.mark.parametrize("is_sent", [True, False])
def test_a_block_that_has_changed_is_not_sent(is_sent: bool, tmp_path: Path) -> None:
    requests: Any = Requests()
    state = State(tmp_path)
    state.image.write_bytes(BLOCK * b"x")
    blocks = Blocks({0: hashlib.sha256(BLOCK * (b"x" if is_sent else b"y")).digest()})
    writer = Writer(requests, state, lambda *_: None)

    if is_sent:
        writer.put_all("snap-1", blocks)
    else:
        with pytest.raises(DataError, match="has changed since it was made"):
            writer.put_all("snap-1", blocks)

    assert requests.made == (["PutSnapshotBlock"] if is_sent else [])
