"""The archive that SageMaker's toolkit unpacks in /opt/ml/code: the trainer, its entry point, requirements.txt.

Equal code gives equal bytes, so the digest identifies the code of a job.  It contains none of the user's files.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.abc import Traversable
from importlib.resources import files

from launch.core.source.archive import Member, stored, tar
from trainer.contract import SAGEMAKER_PACKAGES, SAGEMAKER_SCRIPT, SAGEMAKER_SCRIPT_TEXT

REQUIREMENTS = "requirements.txt"


@dataclass(frozen=True)
class Bundle:
    """A tar.gz, the SHA-256 of the tar in it, and the names of its files."""

    content: bytes
    digest: str
    names: tuple[str, ...]


def make_bundle(requirements: str, packages: str = "") -> Bundle:
    """The source of a job.  requirements, packages: the texts of requirements.txt, which AWS's toolkit installs, and of
    packages.txt, which the trainer does; where one is empty, there is no such file.
    """
    members = dict(sorted({SAGEMAKER_SCRIPT: SAGEMAKER_SCRIPT_TEXT.encode(), **dict(_package())}.items()))
    if packages:
        members[SAGEMAKER_PACKAGES] = packages.encode()
    if requirements:
        members[REQUIREMENTS] = requirements.encode()
    plain = tar(Member(name, content) for name, content in members.items())
    return Bundle(stored(plain), hashlib.sha256(plain).hexdigest(), tuple(members))


def _package() -> Iterator[tuple[str, bytes]]:
    yield from _python_files(files("trainer"), "trainer")


def _python_files(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for item in folder.iterdir():
        inside = f"{name}/{item.name}"
        if item.is_dir():
            yield from _python_files(item, inside)
        elif item.name.endswith(".py"):
            yield inside, item.read_bytes()
