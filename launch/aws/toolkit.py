"""The trainer for containers that lack it: its files, and the pinned packages to install beside them.  Pure."""

import re
from collections.abc import Collection, Iterator
from functools import cache
from importlib.abc import Traversable
from importlib.resources import files

from launch.core.source.archive import Archive, Member, pack
from launch.core.training.base import Training

LACKING = "sagemaker"  # the lock with what AWS's images may lack
PACKAGES = "packages.txt"  # the name of that list in the archive


def trainer_files() -> Iterator[tuple[str, bytes]]:
    """Name and content of each file of the package trainer."""
    yield from _python_files(files("trainer"), "trainer")


def _python_files(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for item in folder.iterdir():
        inside = f"{name}/{item.name}"
        if item.is_dir():
            yield from _python_files(item, inside)
        elif item.name.endswith(".py"):
            yield inside, item.read_bytes()


def toolkit(train: Training, lacks: Collection[str]) -> Archive:
    """The trainer with the list of packages that a container lacks for this training: `lacks`, and its trackers'."""
    names = {*lacks, *(["obstore"] if train.data_url else [])}
    text = requirements(names) + tracking(train.trackers)
    return pack([Member(PACKAGES, text.encode()), *(Member(name, content) for name, content in trainer_files())])


def requirements(names: Collection[str]) -> str:
    """The pinned requirements of these packages without their dependencies, with hashes."""
    pinned = lock(LACKING)
    return "".join(pinned[_canonical(name)] for name in sorted(names))


def tracking(trackers: Collection[str]) -> str:
    """As requirements(), for trackers with their dependencies."""
    pinned = {name: line for tracker in trackers for name, line in lock(f"tracker-{tracker}").items()}
    return "".join(line for _, line in sorted(pinned.items()))


@cache
def lock(name: str) -> dict[str, str]:
    """{package: its requirement, with its lines of hashes} of infra/locks/NAME.txt."""
    text = files("infra").joinpath("locks", f"{name}.txt").read_text()
    rows = re.findall(r"^(([\w.-]+)==.*(?:\n[ \t]+--hash=.*)*\n)", text, re.MULTILINE)
    return {_canonical(name): requirement for requirement, name in rows}


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
