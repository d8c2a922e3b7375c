"""The content of an image, and the tag that follows from it: the same content has the same tag."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from launch.core.source.keys import check_name, check_text
from launch.image.options import Target
from trainer.errors import SettingsError, one_line
from trainer.files import LARGEST_JSON, read_regular

DOCKERFILE, PROJECT = "Dockerfile", "pyproject.toml"
_BASE = re.compile(r"^ARG BASE_IMAGE=(\S+)$", re.MULTILINE)

# What the Dockerfile copies for every target, and in addition for the lab.
_ALWAYS = (
    DOCKERFILE, ".dockerignore", "LICENSE", PROJECT, "infra/container", "infra/locks/notebook.txt", "trainer",
)  # fmt: skip
_LAB = ("infra", "launch", "notebooks/single_gpu.ipynb")
# What projects call the address of their source, in small letters without punctuation:
# https://packaging.python.org/en/latest/specifications/well-known-project-urls/
_SOURCE_URLS = ("source", "repository", "sourcecode", "github")


@dataclass(frozen=True)
class Source:
    """folder: of the checkout; content: hash of the files, the target and the base's name, 16 hexadecimal digits.

    own_base: whether the base differs from the Dockerfile's; names: of the files; url: where the source is to be had,
    "" where the checkout does not say so.
    """

    folder: Path
    target: Target
    base: str
    content: str
    own_base: bool = False
    names: tuple[str, ...] = ()
    url: str = ""

    @property
    def tag(self) -> str:
        return f"{self.target}-{self.content}"

    @property
    def alias(self) -> str:
        """The tag that moves with each push."""
        return "latest" if self.target == "trainer" else self.target


def read_source(folder: Path, target: Target, base: str | None) -> Source:
    """The source in a checkout.

    Raises SettingsError if `folder` is not one, and for a file that looks like a key.
    """
    if not (folder / DOCKERFILE).is_file():
        raise SettingsError(
            f"no {DOCKERFILE} in {folder}: images are built from a checkout of the toolkit; clone it, and run this "
            "command there."
        )
    (default,) = _BASE.findall((folder / DOCKERFILE).read_text())
    base = base or default
    content = hashlib.sha256(f"{target}\n{base}\n".encode())
    names = tuple(sorted(set(_files(folder, target))))
    for name in names:
        digest = hashlib.sha256(_checked(folder, name)).hexdigest()
        content.update(f"{digest} {name}\n".encode())
    return Source(folder, target, base, content.hexdigest()[:16], base != default, names, _url(folder))


def _url(folder: Path) -> str:
    """From [project.urls], which is a part of the content: the same content has the same labels."""
    import tomllib  # only here: --help needs none

    project = tomllib.loads(read_regular(folder / PROJECT, LARGEST_JSON).decode()).get("project", {})
    urls = {re.sub(r"[\W_]", "", name).lower(): url for name, url in project.get("urls", {}).items()}
    return next((urls[name] for name in _SOURCE_URLS if name in urls), "")


def _files(folder: Path, target: Target) -> Iterator[str]:
    for name in _ALWAYS + (_LAB if target == "jupyter" else ()):
        path = folder / name
        for file in path.rglob("*") if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                yield file.relative_to(folder).as_posix()


def _checked(folder: Path, name: str) -> bytes:
    content = (folder / name).read_bytes()
    try:
        check_name(name)
        check_text(name, content)
    except SettingsError:
        raise SettingsError(
            f"{one_line(folder / name, 300)} looks like a key, or holds one, and docker or CodeBuild would get it with "
            "all that an image is made of; put it into another folder."
        ) from None
    return content
