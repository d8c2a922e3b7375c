"""The archive of a source: equal files give equal bytes, and everybody's tar unpacks it."""

import gzip
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from launch.core.source.archive import TIME, Member, pack
from tests.launch.core.source.folder import source, unpacked, write

FILES = {"train.py": "print(1)\n", "lib/__init__.py": "", "lib/näme.py": "x = 1\n"}


def test_equal_files_give_equal_bytes_whenever_and_wherever_they_were_written(tmp_path: Path) -> None:
    one = write(tmp_path / "one", FILES)
    other = write(tmp_path / "other", dict(reversed(FILES.items())))
    for path in other.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o600 if path.is_file() else 0o700)

    assert source(one).archive == source(other).archive


def test_the_bytes_are_the_ones_that_they_were(tmp_path: Path) -> None:
    """Changed bytes would send all sources again.  If this fails on another Python, it says so there."""
    digest = source(write(tmp_path, FILES)).digest

    assert digest == "3414495dedc99ba93c83349fbbdb94040634c491222ff2c5cb4b9208fce0465c"


@pytest.mark.parametrize("size", [0, 1, 65_535 - 1024, 65_536, 65_535 * 3, 1_000_001])
def test_it_unpacks_at_every_size(size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    archive = pack([Member("file", content[:size])])

    with tarfile.open(fileobj=io.BytesIO(archive.content), mode="r:gz") as tar:
        found = tar.extractfile("file")
        assert found is not None
        assert found.read() == content[:size]
    assert len(gzip.decompress(archive.content)) % tarfile.RECORDSIZE == 0


def test_a_program_stays_one_and_a_link_a_link(tmp_path: Path) -> None:
    write(tmp_path, {"prepare.sh": "#!/bin/sh\n", "train.py": ""})
    (tmp_path / "prepare.sh").chmod(0o711)
    (tmp_path / "latest.py").symlink_to("train.py")

    members = unpacked(source(tmp_path))

    assert {name: (oct(one.mode), one.linkname) for name, one in members.items()} == {
        "latest.py": ("0o777", "train.py"), "prepare.sh": ("0o755", ""), "train.py": ("0o644", ""),
    }  # fmt: skip
    assert {(one.uid, one.gid, one.uname, one.gname, one.mtime) for one in members.values()} == {(0, 0, "", "", TIME)}


HOSTILE = [
    "new\nline.py", "it's \"quoted\".py", "\u202efdp.py", " spaces ", "-rf", "$(touch x)", "a" * 250,
    "d" * 120 + "/" + "f" * 200, os.fsdecode(b"latin-\xe4.py"), "back\\slash", "*", "~", "C:",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_any_name_arrives_as_it_is(tmp_path: Path, name: str) -> None:
    write(tmp_path / "sent", {"train.py": "", name: "x"})
    archive = tmp_path / "source.tar.gz"
    found = source(tmp_path / "sent")
    archive.write_bytes(found.archive.content)

    subprocess.run(["tar", "--no-same-owner", "-xzf", archive, "-C", tmp_path / "sent"], check=True)
    with tarfile.open(archive) as file:
        file.extractall(tmp_path / "unpacked", filter="data")

    assert name in found.files
    assert (tmp_path / "unpacked" / name).read_text() == "x"
    assert {path.name for path in (tmp_path / "sent").iterdir()} == {"train.py", name.split("/")[0]}
