"""A folder of a user's, and what the tests ask about it."""

import io
import os
import subprocess
import tarfile
from pathlib import Path

from launch.core.source.find import Source, find


def write(folder: Path, files: dict[str, str]) -> Path:
    """Writes the files, with their folders, and returns the folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def repository(folder: Path, files: dict[str, str]) -> Path:
    """The same as the top of a git repository."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    return write(folder, files)


def git(folder: Path, *words: str) -> None:
    """Run git in the folder, with an author's name for commits."""
    author = ["-c", "user.name=n", "-c", "user.email=e", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *author, *words], cwd=folder, check=True, capture_output=True)


def source(folder: Path, script: str = "train.py", **given: Path) -> Source:
    """The source of a script in `folder`, where the user stands."""
    return find(Path(script), None, given.get("source_dir"), given.get("cwd", folder), home=Path("/home/somebody"))


def unpacked(found: Source) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(found.archive.content), mode="r:gz") as archive:
        return {member.name: member for member in archive}


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path
