"""The source is unpacked whole or not at all, once, and only if it is what was sent."""

import errno
import hashlib
import io
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest

from trainer.contract import Exit
from trainer.errors import TrainerError
from trainer.script import unpack
from trainer.script.config import ScriptConfig
from trainer.script.unpack import source_folder


def archive(folder: Path, name: str = "train.py", content: bytes = b"print(1)\n", links_to: str = "") -> Path:
    path = folder / "source.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        if links_to:
            member.type, member.linkname, member.size = tarfile.LNKTYPE, links_to, 0
        tar.addfile(member, io.BytesIO(content))
    return path


def config(source: Path, work: Path, digest: str | None = None) -> ScriptConfig:
    digest = digest or hashlib.sha256(source.read_bytes()).hexdigest()
    return ScriptConfig(run_dir=Path("run"), source=source, digest=digest, work=work, words=("train.py",))


def refused(given: ScriptConfig) -> TrainerError:
    with pytest.raises(TrainerError) as error:
        source_folder(given)
    assert given.work is not None
    assert not given.work.exists() or list(given.work.iterdir()) == []  # nothing half is left
    return error.value


def test_the_source_is_unpacked_under_its_digest_and_can_be_written_to(tmp_path: Path) -> None:
    given = config(archive(tmp_path), tmp_path / "work")

    top = source_folder(given)

    assert top == tmp_path / "work" / given.digest[:12]
    assert [path.name for path in top.parent.iterdir()] == [top.name]
    assert (top / "train.py").read_text() == "print(1)\n"
    assert top.stat().st_mode & 0o777 == 0o755


def test_what_the_script_wrote_beside_its_source_is_there_after_a_restart(tmp_path: Path) -> None:
    given = config(archive(tmp_path), tmp_path / "work")
    (source_folder(given) / "written").touch()
    archive(tmp_path).unlink()

    assert (source_folder(given) / "written").exists()


def test_of_two_that_unpack_at_once_the_second_uses_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = config(archive(tmp_path), tmp_path / "work")
    extract = unpack._extract

    def another_is_quicker(path: Path, content: bytes, folder: Path) -> None:
        monkeypatch.setattr(unpack, "_extract", extract)
        (source_folder(given) / "written").touch()
        extract(path, content, folder)

    monkeypatch.setattr(unpack, "_extract", another_is_quicker)

    assert (source_folder(given) / "written").exists()
    assert len(list((tmp_path / "work").iterdir())) == 1


def test_an_archive_that_is_not_the_one_that_was_sent_may_be_sent_again(tmp_path: Path) -> None:
    error = refused(config(archive(tmp_path), tmp_path / "work", "0" * 64))

    assert error.code == Exit.MACHINE
    assert "is not the source that was sent" in str(error)


def test_the_whole_digest_counts_and_not_only_what_names_the_folder(tmp_path: Path) -> None:
    """Twelve digits can be found again: 2^48 tries for who may write under the archive's name."""
    source = archive(tmp_path)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    other = digest[:-1] + ("0" if digest[-1] != "0" else "1")

    assert refused(config(source, tmp_path / "work", other)).code == Exit.MACHINE


def test_an_archive_that_is_replaced_behind_the_look_at_its_digest_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = config(archive(tmp_path), tmp_path / "work")
    make_folder = tempfile.mkdtemp

    def replaced_first(**place: Any) -> str:  # what is done between the two
        archive(tmp_path, content=b"a stranger's\n")
        return make_folder(**place)

    monkeypatch.setattr(tempfile, "mkdtemp", replaced_first)

    assert (source_folder(given) / "train.py").read_text() == "print(1)\n"


@pytest.mark.parametrize("keep", [10, 60])
def test_an_archive_that_is_damaged_is_a_sentence(keep: int, tmp_path: Path) -> None:
    path = archive(tmp_path, content=bytes(range(256)) * 64)
    path.write_bytes(path.read_bytes()[:keep])

    error = refused(config(path, tmp_path / "work"))

    assert error.code == Exit.SETTINGS
    assert "is no whole .tar.gz" in str(error)


def test_what_is_no_archive_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "source.tar.gz"
    path.write_text("<html>not found</html>")

    assert "is no whole .tar.gz" in str(refused(config(path, tmp_path / "work")))


def test_a_link_to_nothing_is_a_sentence(tmp_path: Path) -> None:
    assert "is no whole .tar.gz" in str(refused(config(archive(tmp_path, links_to="gone"), tmp_path / "work")))


def test_a_missing_archive_is_a_sentence(tmp_path: Path) -> None:
    assert refused(config(tmp_path / "none", tmp_path / "work", "0" * 64)).code == Exit.SETTINGS


@pytest.mark.parametrize("name", ["../outside.py", "a/../../outside.py"])
def test_an_archive_that_reaches_outside_is_refused(name: str, tmp_path: Path) -> None:
    error = refused(config(archive(tmp_path, name), tmp_path / "work"))

    assert error.code == Exit.SETTINGS
    assert list(tmp_path.rglob("outside.py")) == []


@pytest.mark.parametrize(
    ("kind", "leads_to"), [(tarfile.SYMTYPE, "/etc/passwd"), (tarfile.SYMTYPE, "../../up"), (tarfile.FIFOTYPE, "")]
)
def test_neither_a_link_out_of_the_folder_nor_a_pipe_is_unpacked(kind: bytes, leads_to: str, tmp_path: Path) -> None:
    path = tmp_path / "source.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo("odd")
        member.type, member.linkname = kind, leads_to
        tar.addfile(member)

    assert "is refused" in str(refused(config(path, tmp_path / "work")))


def test_a_full_disk_is_a_sentence_with_its_own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes, folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(unpack, "_extract", full)

    error = refused(config(archive(tmp_path), tmp_path / "work"))

    assert error.code == Exit.DISK
    assert str(error).endswith("(No space left on device); make room, then start again.")


def test_without_an_archive_the_script_runs_where_this_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert source_folder(ScriptConfig(run_dir=Path("run"), words=("train.py",))) == tmp_path
