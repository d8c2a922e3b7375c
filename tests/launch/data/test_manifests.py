"""A manifest of a prepared folder may be a stranger's."""

import functools
import json
import operator
import os
from pathlib import Path

import pytest

from launch.core.published import content_in, read_content
from launch.data.prepared import read_prepared
from tests.launch.data.desk import NAME, write_prepared
from trainer.errors import DataError


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "webdataset", "version": 1}', "[" * 200_000, '{"format": 1}'])
def test_a_damaged_manifest_is_named(text: str, tmp_path: Path) -> None:
    folder = write_prepared(tmp_path / NAME)
    (folder / "manifest.json").write_text(text)

    with pytest.raises(DataError, match=r"manifest.json is damaged"):
        read_prepared(folder)


@pytest.mark.parametrize(
    ("place", "value"),
    [("resize", float("inf")), ("splits", [1]), ("splits.train.images", float("inf")), ("splits.train.index.file", 5),
     ("splits.train.index.file", "a" * 5000), ("splits.train.index.file", "../\x1b[2J"),
     ("splits.val.shards", [{"file": "/etc/passwd", "images": 1, "bytes": 1, "sha256": "0" * 64}])],
)  # fmt: skip
def test_a_strangers_manifest_is_read_as_strictly_as_by_a_training(place: str, value: object, tmp_path: Path) -> None:
    folder = write_prepared(tmp_path / NAME)
    content = json.loads((folder / "manifest.json").read_text())
    *above, last = place.split(".")
    functools.reduce(operator.getitem, above, content)[last] = value
    (folder / "manifest.json").write_text(json.dumps(content))

    with pytest.raises(DataError, match=r"^[^\x1b]*manifest\.json is damaged [^\x1b]{1,400}$"):
        read_prepared(folder)


def test_no_manifest_without_end_is_read(tmp_path: Path) -> None:
    folder = write_prepared(tmp_path / NAME)
    os.truncate(folder / "manifest.json", 2**40)  # a hole

    with pytest.raises(DataError, match=r"manifest\.json cannot be read \(larger than 16 MiB"):
        read_prepared(folder)


def test_what_a_published_manifest_counts_is_a_number() -> None:
    """One in S3, which a plan reads for its forecast."""
    content = {"splits": {"train": {"images": float("inf"), "bytes": 1}}, "classes": [], "resize": 0}

    with pytest.raises(ValueError, match="not a number"):
        content_in(content)
    with pytest.raises(ValueError, match="not a number"):
        read_content({"train": float("inf"), "val": 1, "bytes": 1, "classes": 1, "px": 0})


@pytest.mark.parametrize("odd", [10**400, -5], ids=["huge", "negative"])
@pytest.mark.parametrize("name", ["images", "bytes"])
def test_nor_is_it_one_that_no_forecast_can_count_with(name: str, odd: int) -> None:
    """Whoever made the data set would end every plan that reads it with a traceback."""
    with pytest.raises(ValueError, match="not a number of images or bytes"):
        content_in({"splits": {"train": {"images": 1, "bytes": 1, name: odd}}, "classes": [], "resize": 0})


def test_a_manifest_of_another_format_is_named(tmp_path: Path) -> None:
    folder = write_prepared(tmp_path / NAME)
    content = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**content, "format": "mds"}))

    with pytest.raises(DataError, match="is of format mds, version 1"):
        read_prepared(folder)
