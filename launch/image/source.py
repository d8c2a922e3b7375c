"""The content of an image, the tag that follows from it, and the zip that CodeBuild gets."""

import hashlib
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from launch.aws.containers import in_region
from launch.aws.lookup import SOME_REGION
from launch.core.source.keys import check_name, check_text
from launch.image.options import Target
from trainer.errors import SettingsError, one_line

DOCKERFILE, PROJECT = "Dockerfile", "pyproject.toml"
_BASES = re.compile(r"^ARG (BASE_IMAGE|LAUNCHER_BASE)=(\S+)$", re.MULTILINE)

# What the Dockerfile copies for every target, and in addition for the launcher and for the lab.
_ALWAYS = (
    DOCKERFILE, ".dockerignore", "LICENSE", PROJECT, "infra/container", "infra/locks/notebook.txt", "trainer",
)  # fmt: skip
_MORE: Mapping[Target, tuple[str, ...]] = {
    "launcher": ("infra", "launch"),
    "jupyter": ("infra", "launch", "notebooks/single_gpu.ipynb"),
}
# Well-known labels of a project's source URL, in lower case without punctuation:
# https://packaging.python.org/en/latest/specifications/well-known-project-urls/
_SOURCE_URLS = ("source", "repository", "sourcecode", "github")


@dataclass(frozen=True)
class Source:
    """What an image is built from."""

    folder: Path  # of the checkout
    target: Target
    base: str
    content: str  # hash of the files, the target and the base's name, 16 hexadecimal digits
    own_base: bool = False  # whether the base differs from the Dockerfile's
    names: tuple[str, ...] = ()  # of the files
    url: str = ""  # of the source code, "" if the checkout does not name one

    @property
    def tag(self) -> str:
        return f"{self.target}-{self.content}"

    @property
    def alias(self) -> str:
        """The tag that moves with each push."""
        return "latest" if self.target == "trainer" else self.target


def base_argument(target: Target) -> str:
    """The argument of the Dockerfile that names the target's base."""
    return "LAUNCHER_BASE" if target == "launcher" else "BASE_IMAGE"


def read_source(folder: Path, target: Target, base: str | None, region: str = SOME_REGION) -> Source:
    """The source in a checkout.  The Dockerfile's base comes from the region's registry, if it is AWS's: another
    region's costs traffic, and an organization may forbid it.

    Raises SettingsError if `folder` is not one, and for a file that looks like a key.
    """
    if not (folder / DOCKERFILE).is_file():
        raise SettingsError(
            f"no {DOCKERFILE} in {folder}: images are built from a checkout of the toolkit; clone it, and run this "
            "command there."
        )
    default = dict(_BASES.findall((folder / DOCKERFILE).read_text()))[base_argument(target)]
    named = base or default
    content = hashlib.sha256(f"{target}\n{named}\n".encode())  # the same in every region
    base = base or in_region(default, region)
    names = tuple(sorted(set(_files(folder, target))))
    for name in names:
        digest = hashlib.sha256(_checked(folder, name)).hexdigest()
        content.update(f"{digest} {name}\n".encode())
    return Source(folder, target, base, content.hexdigest()[:16], base != default, names, _url(folder))


def _url(folder: Path) -> str:
    """The source URL in [project.urls], which is part of the content, as equal content must have equal labels."""
    import tomllib  # only here: --help needs none

    project = tomllib.loads((folder / PROJECT).read_text(encoding="utf-8")).get("project", {})
    urls = {re.sub(r"[\W_]", "", name).lower(): url for name, url in project.get("urls", {}).items()}
    return next((urls[name] for name in _SOURCE_URLS if name in urls), "")


def _files(folder: Path, target: Target) -> Iterator[str]:
    for name in _ALWAYS + _MORE.get(target, ()):
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


# ---- the build context as a zip, for a machine without a checkout

# infra/cloudformation/account.yaml expires these; infra/iam names the prefix, too.
PREFIX = "aws-ddp-toolkit-builds/"  # expires after a week, so no name that data may have


@dataclass(frozen=True)
class Context:
    """The files that an image is built from, for CodeBuild."""

    content: bytes  # a zip
    key: str  # in the account's bucket


def pack(source: Source) -> Context:
    """The files of `source`.  The same files give the same bytes and key."""
    buffer = BytesIO()
    # Stored, because versions of zlib compress differently.
    with ZipFile(buffer, "w", ZIP_STORED) as file:
        for name in source.names:
            entry = ZipInfo(name)  # dated 1980, as in the Dockerfile
            entry.create_system, entry.external_attr = 3, (stat.S_IFREG | 0o644) << 16
            file.writestr(entry, (source.folder / name).read_bytes())
    content = buffer.getvalue()
    return Context(content, f"{PREFIX}{hashlib.sha256(content).hexdigest()[:16]}.zip")
