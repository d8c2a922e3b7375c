"""The source bundle of a job for /opt/ml/code, with requirements by hash."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.abc import Traversable
from importlib.resources import files

from launch.core.source.archive import Member, stored, tar
from launch.core.training.base import Training
from launch.sagemaker.images import Image
from launch.sagemaker.options import SageMakerOptions
from trainer.contract import SAGEMAKER_PACKAGES, SAGEMAKER_SCRIPT, SAGEMAKER_SCRIPT_TEXT

REQUIREMENTS = "requirements.txt"


@dataclass(frozen=True)
class Bundle:
    """A source bundle."""

    content: bytes  # tar.gz
    digest: str  # SHA-256 of the tar in it
    names: tuple[str, ...]  # of its files


def make_bundle(requirements: str, packages: str = "") -> Bundle:
    """The bundle of a job.

    requirements: the text of requirements.txt, for AWS's toolkit to install; packages: of packages.txt, for the trainer
    to install.  If empty, the file is omitted.
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


LACKING = "sagemaker"
SERVER = "mlflow-server"  # with AWS's plugin; this and Training.trackers name locks: tracker-NAME.txt


def requirements_of(options: SageMakerOptions, image: Image, train: Training) -> str:
    """The text of requirements.txt: the pinned packages that this training needs and `image` lacks, with hashes."""
    wanted = set(image.lacks)
    if train.data_url is not None:  # the toolkit's own image has it, and pip keeps that version
        wanted.add("obstore")
    if options.distribution == "pytorchddp" and not image.mpi4py:
        wanted.add("mpi4py")
    lock = _lock(LACKING)
    return "".join(lock[_canonical(name)] for name in sorted(wanted))


def named(options: SageMakerOptions, image: Image, train: Training) -> list[str]:
    """The packages that pip installs in `image`, and the trackers whose packages it installs."""
    lacking = re.findall(r"^([\w.-]+==\S+)", requirements_of(options, image, train), re.MULTILINE)
    return [*lacking, *(f"those of {name}" for name in _trackers(options, train))]


def _trackers(options: SageMakerOptions, train: Training) -> list[str]:
    return [*train.trackers] + [SERVER] * (options.mlflow_server is not None)


def tracking_of(options: SageMakerOptions, train: Training) -> str:
    """As requirements_of(), for the trackers of this training with their dependencies; empty without trackers."""
    locks = [_lock(f"tracker-{name}") for name in _trackers(options, train)]
    return "".join(line for _, line in sorted({name: line for lock in locks for name, line in lock.items()}.items()))


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _lock(name: str) -> dict[str, str]:
    """{package: its requirement, with its lines of hashes}."""
    # Imported here to keep --help fast.
    from importlib.resources import files

    text = files("infra").joinpath("locks", f"{name}.txt").read_text()
    rows = re.findall(r"^(([\w.-]+)==.*(?:\n[ \t]+--hash=.*)*\n)", text, re.MULTILINE)
    return {_canonical(name): requirement for requirement, name in rows}
