"""A manifest of a prepared folder may be a stranger's."""

import functools
import inspect
import json
import operator
import os
import sys
from pathlib import Path

import pytest

from launch.core.manifest import content_in, read_content
from launch.data.prepared import check_nothing_else, check_source, count_source, read_prepared
from tests.launch.data.desk import NAME, write_prepared
from trainer.errors import DataError, SettingsError


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


def with_source(folder: Path, **counts: object) -> Path:
    content = json.loads((folder / "manifest.json").read_text())
    content["source"] = {"kind": "folder", "name": "photos", **counts}
    (folder / "manifest.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize("counts", [{}, {"images": "many", "bytes": [1]}, {"images": 10**4000, "bytes": "\x1b[2J"}])
def test_what_a_manifest_says_of_its_source_is_shown_whatever_it_is(counts: dict[str, object], tmp_path: Path) -> None:
    for name in ("train/cat", "train/dog", "val/cat", "val/dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "1.jpg").symlink_to("nowhere")  # which trainer.prepare counts as of no bytes
    prepared = read_prepared(with_source(write_prepared(tmp_path / NAME), **counts))
    same = read_prepared(with_source(write_prepared(tmp_path / "same"), images=4, bytes=0))

    with pytest.raises(SettingsError, match=r"^[^\x1b]* has 4 images of 0 bytes, and [^\x1b]{1,400}$"):
        check_source(prepared, tmp_path / "photos")
    check_source(same, tmp_path / "photos")


def test_folders_far_within_each_other_are_counted(tmp_path: Path) -> None:
    """A thousand, which not even Python's rmtree takes away: so here fewer, and less of Python's calls."""
    (tmp_path / ("d/" * 300)).mkdir(parents=True)
    (tmp_path / ("d/" * 300) / "photo.jpg").write_bytes(b"photo")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 200)
    try:
        assert count_source(tmp_path) == (1, 5)
    finally:
        sys.setrecursionlimit(limit)


def test_a_path_longer_than_programs_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(20):
        Path("d" * 250).mkdir()
        os.chdir("d" * 250)
    os.chdir(tmp_path)

    with pytest.raises(DataError, match=r"cannot be read \(File name too long\); move it away"):
        count_source(tmp_path)


def test_a_name_in_a_prepared_folder_is_no_line_of_its_own(tmp_path: Path) -> None:
    folder = write_prepared(tmp_path / NAME)
    (folder / "a\nerror: b").touch()

    with pytest.raises(DataError, match="/a error: b is no part"):
        check_nothing_else(read_prepared(folder))
