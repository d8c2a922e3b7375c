"""A folder of a user's, and what the tests ask about it."""

import io
import os
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
    return write(folder, {".git/HEAD": "ref: refs/heads/main\n", **files})


def source(folder: Path, script: str = "train.py", **given: Path) -> Source:
    """The source of a script in `folder`, where the user stands."""
    return find(Path(script), None, given.get("source_dir"), given.get("cwd", folder), home=Path("/home/somebody"))


def unpacked(found: Source) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(found.archive.content), mode="r:gz") as archive:
        return {member.name: member for member in archive}


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path
