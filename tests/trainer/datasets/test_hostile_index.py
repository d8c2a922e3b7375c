"""An index.npy that a stranger made, with digests that fit."""

import hashlib
import io
import os
from pathlib import Path

import numpy as np
import pytest

from trainer.datasets.entries import ENTRY
from trainer.datasets.manifest import Half, Index, Shard
from trainer.datasets.shards import _fits, read_index
from trainer.errors import DataError


def half_of(content: bytes, size: int = 512) -> Half:
    """Of one image, in a shard of `size` bytes."""
    index = Index(file="train/index.npy", sha256=hashlib.sha256(content).hexdigest())
    return Half(
        images=1, bytes=size, index=index, shards=(Shard(file="train/0.tar", images=1, bytes=size, sha256="0" * 64),)
    )


def index_that_claims(text: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def an_archive_of_arrays() -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.zeros(1))
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [b"", an_archive_of_arrays(), index_that_claims(b"-" * 9000 + b"1"), index_that_claims(b"(" * 9000)],
    ids=["empty", "several arrays", "nested", "never closed"],
)
def test_a_strangers_index_of_anything_ends_in_a_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "index.npy").write_bytes(content)

    with pytest.raises(DataError, match=r"cannot read .*index\.npy \(.+\)|is not the one that was prepared"):
        read_index(tmp_path / "index.npy", half_of(content), 1)


@pytest.mark.timeout(30)
def test_an_index_that_is_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "index.npy")

    with pytest.raises(DataError, match="not an ordinary file"):
        read_index(tmp_path / "index.npy", half_of(b""), 1)


def test_an_image_of_gigabytes_is_none_of_a_shard() -> None:
    """A shard of four gigabytes that is one hole takes no room on a disk, and each thread would read all of it."""
    half = half_of(b"", 2**32)

    assert _fits(np.array([(0, 512, 2**30, 0)], ENTRY), half, 1)
    assert not _fits(np.array([(0, 512, 2**30 + 1, 0)], ENTRY), half, 1)
