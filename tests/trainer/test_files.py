"""Files are replaced whole, and only files are."""

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from trainer.files import below, open_lock, write_atomically


def test_what_a_killed_process_left_under_the_temporary_name_is_replaced(tmp_path: Path) -> None:
    """In containers processes have the same numbers; it may be a second name of a checkpoint."""
    temporary = tmp_path / f".file.{os.getpid()}.tmp"
    (tmp_path / "precious").write_text("kept")
    temporary.hardlink_to(tmp_path / "precious")
    write_atomically(tmp_path / "file", "x")
    temporary.write_text("half")
    write_atomically(tmp_path / "file", "y")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "precious"]
    assert (tmp_path / "precious").read_text() == "kept"
    assert (tmp_path / "file").read_text() == "y"


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


def test_a_folder_that_is_not_there_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(below(tmp_path / "nowhere"))


@pytest.mark.parametrize(("folder", "lock"), [(0o700, 0o600), (0o2775, 0o664)], ids=["private", "a team's"])
def test_who_may_write_in_a_folder_may_use_its_locks(folder: int, lock: int, tmp_path: Path) -> None:
    tmp_path.chmod(folder)
    file = open_lock(tmp_path / "lock")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(file)
    assert (tmp_path / "lock").stat().st_mode & 0o777 == lock
