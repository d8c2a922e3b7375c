"""Folders that cannot be sent as they are: too large, with links, unreadable, or changing meanwhile."""

import os
from pathlib import Path
from typing import Any

import pytest

from launch.core.source import find, walk
from launch.core.source.walk import Listing, list_files
from tests.launch.core.source.folder import pipe, source, unpacked, write
from trainer.errors import SettingsError


def test_too_many_files_are_refused_with_the_folders_to_blame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "MOST_FILES", 100)
    write(tmp_path, dict.fromkeys([f"data/train/{i}" for i in range(95)] + [f"lib/{i}" for i in range(5)], ""))
    write(tmp_path, {"train.py": ""})

    with pytest.raises(
        SettingsError, match=r"has 101 files .* data/train/ \(95 files\), lib/ \(5 files\).*--source-dir"
    ):
        source(tmp_path)
    (tmp_path / "lib/0").unlink()
    assert len(source(tmp_path).files) == 100


def test_too_many_bytes_are_refused_with_the_files_to_blame(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "x", "a/b/.keep": "x"})
    for name, size in {"a/b/model.ckpt": 60_000_000, "data.bin": 10_000_000}.items():
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)  # takes no room

    with pytest.raises(
        SettingsError, match=r"70 MB, .*: a/b/model\.ckpt \(60\.0 MB\), data\.bin \(10\.0 MB\).*launch\.data"
    ):
        source(tmp_path)


def test_a_file_that_grows_meanwhile_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"train.py": "", "log": "x"})
    more = {"train.py": 1, "log": 30_000_000, "other.log": 30_000_000}
    write(tmp_path, {"other.log": ""})
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: b"x" * more[path.name] if path.name in more else read(path))

    with pytest.raises(SettingsError, match=r"60 MB.*log \(30\.0 MB\)"):
        source(tmp_path)


def test_a_file_that_vanishes_meanwhile_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(*given: Any) -> Listing:
        found = list_files(*given)
        (tmp_path / ".train.py.swp").unlink(missing_ok=True)
        return found

    write(tmp_path, {"train.py": "", ".train.py.swp": ""})
    monkeypatch.setattr(find, "list_files", listed)

    assert source(tmp_path).files == ("train.py",)


def test_what_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"train.py": "", "other.py": ""})

    read = Path.read_bytes

    def refused(path: Path) -> bytes:
        if path.name == "other.py":
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(SettingsError, match=r"cannot read .*other\.py \(Permission denied\).*\.gitignore"):
        source(tmp_path)


@pytest.mark.skipif(os.getuid() == 0, reason="root may read every folder")
def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "", "closed/x": ""})
    (tmp_path / "closed").chmod(0)

    with pytest.raises(SettingsError, match=r"cannot read .*closed"):
        source(tmp_path)
    (tmp_path / "closed").chmod(0o700)


def test_pipes_are_left_out_and_not_waited_for(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": ""})
    pipe(tmp_path / "pipe")

    assert source(tmp_path).files == ("train.py",)


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret", "lib/../../secret", "lib/up/../../secret"])
def test_a_link_that_leads_out_is_refused(tmp_path: Path, target: str) -> None:
    top = write(tmp_path / "a/b", {"train.py": "", "lib/x.py": ""})
    write(tmp_path, {"secret": "", "a/secret": ""})
    if "up" in target:
        (top / "lib/up").symlink_to("../lib")
    (top / "link").symlink_to(target)

    with pytest.raises(SettingsError, match=r"the link link leads out of the source folder .*put the line /link into"):
        source(top)
    write(top, {".gitignore": "/link\n"})
    assert "link" not in source(top).files


def test_links_within_the_source_lead_to_the_same_file_on_the_node(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "", "lib/x.py": "", "data.txt": ""})
    links = {"relative": "lib/x.py", "lib/up": "../data.txt", "absolute": str(tmp_path / "lib/x.py"), "folder": "lib",
             "missing": "runs/later", "loop": "loop"}  # fmt: skip
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)

    members = unpacked(source(tmp_path))

    assert {name: members[name].linkname for name in links} == {**links, "absolute": "lib/x.py"}


def test_files_are_not_counted_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "_MOST_SEEN", 20)
    monkeypatch.setattr(walk, "MOST_FILES", 10)
    write(tmp_path, dict.fromkeys(["train.py", *(f"{i}/x" for i in range(50))], ""))

    with pytest.raises(SettingsError, match="more than 20 files"):
        source(tmp_path)
