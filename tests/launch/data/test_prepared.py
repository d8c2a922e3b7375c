"""A prepared folder that is published: its manifest is not trusted, and a damaged one is named in one line."""

import functools
import json
import operator
from pathlib import Path

import pytest

from launch.data.prepared import check_nothing_else, check_source, read_prepared
from tests.launch.data.desk import NAME, write_prepared
from trainer.errors import DataError, SettingsError


def with_value(folder: Path, place: str, value: object) -> Path:
    """A prepared folder whose manifest has this value at splits.train.images, say."""
    content = json.loads((write_prepared(folder) / "manifest.json").read_text())
    *above, last = place.split(".")
    functools.reduce(operator.getitem, above, content)[last] = value
    (folder / "manifest.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "webdataset", "version": 1}', "[" * 200_000, '{"format": 1}'])
def test_a_damaged_manifest_is_named(text: str, tmp_path: Path) -> None:
    folder = write_prepared(tmp_path / NAME)
    (folder / "manifest.json").write_text(text)
    with pytest.raises(DataError, match=r"manifest.json is damaged"):
        read_prepared(folder)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("resize", float("inf")),
        ("splits", [1]),
        ("splits.train.images", float("inf")),
        ("splits.train.index.file", 5),
        ("splits.train.index.file", "a" * 5000),
        ("splits.train.index.file", "../\x1b[2J"),
        ("splits.val.shards", [{"file": "/etc/passwd", "images": 1, "bytes": 1, "sha256": "0" * 64}]),
    ],
)
def test_a_manifest_is_read_as_strictly_as_by_a_training(place: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^[^\x1b]*manifest\.json is damaged [^\x1b]{1,400}$"):
        read_prepared(with_value(tmp_path / NAME, place, value))


def test_a_manifest_of_another_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is of format mds, version 1"):
        read_prepared(with_value(tmp_path / NAME, "format", "mds"))


def test_a_source_with_other_images_is_refused(tmp_path: Path) -> None:
    for name in ("train/cat", "train/dog", "val/cat", "val/dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "1.jpg").symlink_to("nowhere")  # which trainer.prepare counts as of no bytes
    source = {"kind": "folder", "name": "photos"}
    other = read_prepared(with_value(tmp_path / NAME, "source", {**source, "images": 5, "bytes": 9}))
    same = read_prepared(with_value(tmp_path / "same", "source", {**source, "images": 4, "bytes": 0}))

    with pytest.raises(SettingsError, match=r" has 4 images of 0 bytes, and .* was made of 5 of 9;"):
        check_source(other, tmp_path / "photos")
    check_source(same, tmp_path / "photos")


def test_a_name_in_a_prepared_folder_is_shown_in_one_line(tmp_path: Path) -> None:
    folder = write_prepared(tmp_path / NAME)
    (folder / "a\nerror: b").touch()
    with pytest.raises(DataError, match="/a error: b is no part"):
        check_nothing_else(read_prepared(folder))
