"""What a job's container gets from PyPI: every file with its hash, from the locks that `make lock` writes.  Pure.

requirements.txt is installed by AWS's toolkit before the ranks start: what the image lacks of the trainer, and mpi4py.
They need only what every image has.  The trackers need dozens of packages, of which an image has some, at versions
that AWS's toolkit beside them may rely on.  So they are installed by the trainer into a folder of their own, and only
those that the image lacks: trainer/process/packages.py.
"""

import re
from functools import cache

from launch.core.training.base import Training
from launch.sagemaker.images import Image
from launch.sagemaker.options import SageMakerOptions

LACKING = "sagemaker"
SERVER = "mlflow-server"  # with AWS's plugin; this and Training.trackers name locks: tracker-NAME.txt


def requirements_of(options: SageMakerOptions, image: Image, train: Training) -> str:
    """The text of requirements.txt: the pinned packages that `image` lacks for this training, with their hashes."""
    wanted = set(image.lacks)
    if train.data_url is not None:  # our own image has it, and pip leaves that as it is
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
    """As requirements_of(), for all that the trackers of this training need, and need in turn; empty without any."""
    locks = [_lock(f"tracker-{name}") for name in _trackers(options, train)]
    return "".join(line for _, line in sorted({name: line for lock in locks for name, line in lock.items()}.items()))


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _lock(name: str) -> dict[str, str]:
    """{package: its requirement, with its lines of hashes}."""
    # Imported here, as --help needs it not.
    from importlib.resources import files

    text = files("infra").joinpath("locks", f"{name}.txt").read_text()
    rows = re.findall(r"^(([\w.-]+)==.*(?:\n[ \t]+--hash=.*)*\n)", text, re.MULTILINE)
    return {_canonical(name): requirement for requirement, name in rows}
