"""What an image is made of, and the tag that follows from it: the same content has the same tag."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from launch.image.options import Target
from trainer.errors import SettingsError

DOCKERFILE = "Dockerfile"
_BASE = re.compile(r"^ARG BASE_IMAGE=(\S+)$", re.MULTILINE)

# What the Dockerfile copies for every target, and for the lab beside it.
_ALWAYS = (
    DOCKERFILE, ".dockerignore", "LICENSE", "pyproject.toml", "infra/container", "infra/locks/notebook.txt", "trainer",
)  # fmt: skip
_LAB = ("infra", "launch", "notebooks/single_gpu.ipynb")


@dataclass(frozen=True)
class Source:
    """folder: the build's context; content: 16 hexadecimal digits that stand for all that goes in.

    base: its name; own_base: whether that is another than the Dockerfile's; names: of the files that go in.
    """

    folder: Path
    target: Target
    base: str
    content: str
    own_base: bool = False
    names: tuple[str, ...] = ()

    @property
    def tag(self) -> str:
        return f"{self.target}-{self.content}"

    @property
    def alias(self) -> str:
        """The tag that moves with each push."""
        return "latest" if self.target == "trainer" else self.target


def read_source(folder: Path, target: Target, base: str | None) -> Source:
    """The source in a checkout.  Raises SettingsError if it is none."""
    if not (folder / DOCKERFILE).is_file():
        raise SettingsError(
            f"no {DOCKERFILE} in {folder}: the image is built from a checkout of the toolkit; clone it, and start this "
            "command there."
        )
    (usual,) = _BASE.findall((folder / DOCKERFILE).read_text())
    base = base or usual
    whole = hashlib.sha256(f"{target}\n{base}\n".encode())
    names = tuple(sorted(set(_files(folder, target))))
    for name in names:
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        whole.update(f"{digest} {name}\n".encode())
    return Source(folder, target, base, whole.hexdigest()[:16], base != usual, names)


def _files(folder: Path, target: Target) -> Iterator[str]:
    for name in _ALWAYS + (_LAB if target == "jupyter" else ()):
        place = folder / name
        for file in place.rglob("*") if place.is_dir() else [place]:
            if file.is_file() and "__pycache__" not in file.parts:
                yield file.relative_to(folder).as_posix()
