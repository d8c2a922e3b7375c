"""The source is unpacked whole or not at all, once, and only if it is what was sent."""

import errno
import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from trainer.contract import Exit
from trainer.errors import TrainerError
from trainer.script import unpack
from trainer.script.config import ScriptConfig
from trainer.script.unpack import source_folder


def archive(folder: Path, name: str = "train.py", content: bytes = b"print(1)\n") -> Path:
    path = folder / "source.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(content)
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


def test_an_archive_that_is_not_the_one_that_was_sent_may_be_sent_again(tmp_path: Path) -> None:
    error = refused(config(archive(tmp_path), tmp_path / "work", "0" * 64))

    assert error.code == Exit.MACHINE
    assert "is not the source that was sent" in str(error)


@pytest.mark.parametrize(
    "content", [b"<html>not found</html>", gzip.compress(bytes(range(256)) * 64)[:60]], ids=["a page", "cut off"]
)
def test_an_archive_that_is_damaged_is_a_wrong_setting(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "source.tar.gz"
    path.write_bytes(content)

    assert refused(config(path, tmp_path / "work")).code == Exit.SETTINGS


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


def test_without_an_archive_the_script_runs_where_this_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert source_folder(ScriptConfig(run_dir=Path("run"), words=("train.py",))) == tmp_path
