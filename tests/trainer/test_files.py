"""Files are replaced whole, and only files are."""

import fcntl
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.patience import ended_after
from trainer.files import (
    append,
    below,
    create_anew,
    open_lock,
    open_to_append,
    read_below,
    read_regular,
    write_atomically,
)


def test_what_is_no_file_is_not_replaced_by_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not an ordinary file"):
        write_atomically(tmp_path / "pipe", "x")
    assert (tmp_path / "pipe").is_fifo()


def test_a_file_that_grows_while_it_is_read_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of /proc, too, say that they are empty."""
    with (tmp_path / "endless").open("wb") as file:
        file.truncate(2**40)
    small = os.stat(tmp_path)
    monkeypatch.setattr(os, "fstat", lambda _: os.stat_result((0o100644, *small[1:6], 3, *small[7:])))

    with pytest.raises(OSError, match="larger than 2 MiB"):
        read_regular(tmp_path / "endless", 2 * 2**20)


@pytest.mark.parametrize("size", [0, 1, 2**20, 2**20 + 1, 2**21])
def test_a_file_of_the_largest_size_is_read_whole(tmp_path: Path, size: int) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/file").write_bytes(b"x" * size)

    assert read_regular(tmp_path / "inner/file", size) == read_below(tmp_path, "inner/file", size) == b"x" * size


def test_what_a_killed_process_or_a_stranger_left_under_the_temporary_name_is_replaced(tmp_path: Path) -> None:
    """A shared folder may have a link for every number that a process may have."""
    temporary = tmp_path / f".file.{os.getpid()}.tmp"
    (tmp_path / "precious").write_text("kept")
    temporary.symlink_to(tmp_path / "precious")
    write_atomically(tmp_path / "file", "x")
    temporary.write_text("half")
    write_atomically(tmp_path / "file", "y")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "precious"]
    assert (tmp_path / "precious").read_text() == "kept"
    assert (tmp_path / "file").read_text() == "y"


def test_who_makes_it_again_at_the_last_moment_keeps_the_file_from_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / f".file.{os.getpid()}.tmp").symlink_to(tmp_path / "precious")
    monkeypatch.setattr(Path, "unlink", lambda path, missing_ok=False: None)

    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "file", "x")
    assert (tmp_path / "precious").read_text() == "kept"


def test_text_is_added_to_ordinary_files_only(tmp_path: Path) -> None:
    append(tmp_path / "file", "a\n")
    append(tmp_path / "file", "b\n")
    assert (tmp_path / "file").read_text() == "a\nb\n"

    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with ended_after(10), pytest.raises(OSError, match=name):
            append(tmp_path / name, "c\n")
    assert (tmp_path / "file").read_text() == "a\nb\n"


def test_a_pipe_that_somebody_reads_is_no_file_to_add_to_either(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OSError, match="not an ordinary file"):
        open_to_append(tmp_path / "pipe")
    os.close(reader)


@pytest.mark.parametrize("leads_to", ["precious", "nothing"])
def test_a_file_that_is_made_anew_is_no_links(leads_to: str, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "new").symlink_to(tmp_path / leads_to)
    with create_anew(tmp_path / "new") as file:
        file.write(b"x")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "precious"]
    assert (tmp_path / "precious").read_text() == "kept"


@pytest.mark.parametrize("is_there", [False, True], ids=["made", "left by an earlier version"])
@pytest.mark.parametrize(
    ("folder", "lock"),
    [(0o755, 0o600), (0o700, 0o600), (0o1777, 0o600), (0o2775, 0o660), (0o777, 0o666)],
    ids=["one's own", "private", "as /tmp", "a team's", "everybody's"],
)
def test_only_who_may_write_in_its_folder_can_hold_a_lock(
    folder: int, lock: int, is_there: bool, tmp_path: Path
) -> None:
    """flock asks for no right to write: whoever may read a file can lock it, and have its owner wait for ever."""
    path = tmp_path / "lock"
    if is_there:
        path.touch()
        path.chmod(0o664)
    tmp_path.chmod(folder)

    file = open_lock(path)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(file)

    assert path.stat().st_mode & 0o777 == lock


ACL_OF = "system.posix_acl_access", "system.posix_acl_default"  # of the folder, and of what is made in it


def give_acl(folder: Path, name: str, named: int, group: int) -> None:
    """What `setfacl -m u:12345:rwx` does.  named, group: the rights of that user, and of the folder's group."""
    entries = [(1, 7, -1), (2, named, 12345), (4, group, -1), (16, 7, -1), (32, 5, -1)]
    try:
        os.setxattr(folder, name, b"\2\0\0\0" + b"".join(struct.pack("<HHi", *entry) for entry in entries))
    except (OSError, AttributeError):
        pytest.skip("this file system has no lists of rights")


@pytest.mark.parametrize(("group", "lock"), [(5, 0o600), (7, 0o660)], ids=["a group that reads", "that writes"])
def test_a_group_that_may_only_read_holds_no_lock_where_a_colleague_may_write(
    group: int, lock: int, tmp_path: Path
) -> None:
    """Then the folder's mode says that its group may write: its bits are the most that anybody named has."""
    give_acl(tmp_path, ACL_OF[0], 7, group)

    os.close(open_lock(tmp_path / "lock"))

    assert tmp_path.stat().st_mode & 0o777 == 0o775
    assert (tmp_path / "lock").stat().st_mode & 0o777 == lock


def test_a_colleague_who_may_write_in_a_folder_and_all_that_is_made_there_can_hold_its_locks(tmp_path: Path) -> None:
    for name in ACL_OF:
        give_acl(tmp_path, name, 7, 5)

    os.close(open_lock(tmp_path / "lock"))

    found = struct.iter_unpack("<HHi", os.getxattr(tmp_path / "lock", ACL_OF[0])[4:])
    assert {tag: rights for tag, rights, _ in found} == {1: 6, 2: 6, 4: 0, 16: 6, 32: 0}


def test_a_lock_is_neither_a_link_nor_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    with ended_after(10):
        for name in ("pipe", "link"):
            with pytest.raises(OSError, match=r"not an ordinary file|symbolic links"):
                open_lock(tmp_path / name)


def test_what_goes_away_while_a_folder_is_looked_through_is_left_out(tmp_path: Path) -> None:
    """Among run folders that others write, one may be removed at any time."""
    for name in ("a/within", "b/within", "c/within"):
        (tmp_path / "top" / name).mkdir(parents=True)
    found = []
    for path in below(tmp_path / "top"):
        found.append(path.name)
        if len(found) == 3:
            shutil.rmtree(tmp_path / "top/a")
            shutil.rmtree(tmp_path / "top/b")
            (tmp_path / "top/b").touch()
    assert sorted(found) == ["a", "b", "c", "within"]


def test_a_folder_that_may_not_be_read_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "open/within").mkdir(parents=True)
    (tmp_path / "closed/within").mkdir(parents=True)
    scan = os.scandir

    def refused(folder: str) -> Any:
        if folder.endswith("closed"):
            raise PermissionError
        return scan(folder)

    monkeypatch.setattr(os, "scandir", refused)
    assert sorted(path.name for path in below(tmp_path)) == ["closed", "open", "within"]


def test_a_folder_that_is_not_there_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(below(tmp_path / "nowhere"))
