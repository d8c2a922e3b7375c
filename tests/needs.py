"""What a test needs of this machine, as marks: it is skipped with a sentence that names the line that installs it."""

import os
import shutil
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

# What `make test` prints among the promises that it did not try.
DEBIAN = "sudo apt-get install -y --no-install-recommends"
EVERYTHING = "make test-all"
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
Mark = pytest.MarkDecorator
# The Python of its venv: Makefile.
INFERENCE = Path(sys.prefix, "sagemaker-pytorch-inference")
MINISTACK = Path(sys.prefix, "ministack", "bin", "python")


def chromium() -> Mark:
    """A browser, for the pages that the toolkit writes."""
    return _unless(chromium_path() is not None, "chromium", f"{DEBIAN} chromium")


def compiler() -> Mark:
    """gcc, and Python's headers."""
    return programs("gcc", packages="gcc libc6-dev python3-dev")


def containers() -> Mark:
    """buildah, podman and runc, and root, who mounts."""
    return programs("buildah", "podman", "runc", as_root=True)


def ec2_nodes() -> Mark:
    """What rehearsed EC2 nodes with a disk and an address of their own need: namespaces and root."""
    from launch.rehearse.nodes.ec2 import namespaces

    return _unless_reason(namespaces.why_not_here(), f"as root: {DEBIAN} iproute2 e2fsprogs curl")


def gpu() -> Mark:
    """An NVIDIA GPU that torch can use."""
    return _unless(has_gpu(), "an NVIDIA GPU", "run the tests on a machine with one")


@cache
def has_gpu() -> bool:
    """Asks the driver through NVML: torch asked in this process could not be forked any more."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    count: int = pynvml.nvmlDeviceGetCount()
    pynvml.nvmlShutdown()
    return count > 0


def ministack() -> Mark:
    """A second emulator of AWS, in a venv of its own."""
    return _unless(MINISTACK.exists(), "ministack", "make everything")


def module(name: str, package: str = "") -> Mark:
    """A Python package of the test extras."""
    return _unless(find_spec(name) is not None, package or name.replace("_", "-"), EVERYTHING)


def not_root() -> Mark:
    """A user whom permissions bind."""
    return _unless(os.geteuid() != 0, "a user who is not root", "run the tests as such a user")


def process_nodes() -> Mark:
    """What rehearsed EC2 nodes that are processes need: bash and curl."""
    from launch.rehearse.nodes.ec2 import processes

    return _unless_reason(processes.why_not_here(), f"{DEBIAN} bash curl")


def programs(*names: str, packages: str = "", as_root: bool = False) -> Mark:
    """Programs on PATH, from Debian's packages of the same names or those given."""
    missing = [name for name in names if not has_program(name)]
    if not missing and as_root and os.geteuid() != 0:
        return root()
    return _unless(not missing, " and ".join(missing or names), f"{DEBIAN} {packages or ' '.join(names)}")


def root() -> Mark:
    """The rights of root."""
    return _unless(os.geteuid() == 0, "root", "run the tests as root")


def sagemaker_hosts() -> Mark:
    """What rehearsed SageMaker hosts with addresses of their own need: namespaces and root."""
    from launch.rehearse.nodes.sagemaker.network import why_no_network

    return _unless_reason(why_no_network(), f"as root: {DEBIAN} iproute2")


def sagemaker_inference() -> Mark:
    """AWS's inference toolkit, in a folder of its own."""
    return _unless(INFERENCE.exists(), "sagemaker-pytorch-inference", "make everything")


def sagemaker_toolkit() -> Mark:
    """AWS's container toolkit, which is built with a C compiler."""
    installs = f"{DEBIAN} gcc libc6-dev python3-dev; {EVERYTHING}"
    here = find_spec("sagemaker_training") is not None and find_spec("sagemaker_pytorch_container") is not None
    return _unless(here, "sagemaker-training and sagemaker-pytorch-training", installs)


def slurm() -> Mark:
    """A Slurm that can be started on this machine."""
    return programs("slurmctld", "slurmd", "munged", packages="slurm-wlm munge", as_root=True)


@cache
def chromium_path() -> str | None:
    """The browser of this machine, or None."""
    return next(filter(None, map(shutil.which, CHROMIUMS)), None)


@cache
def has_program(name: str) -> bool:
    """Whether PATH, beside this Python or the folders of the system's own programs have it."""
    places = (os.environ.get("PATH", ""), os.path.dirname(sys.executable), "/usr/sbin", "/sbin")  # noqa: PTH120
    return shutil.which(name, path=os.pathsep.join(places)) is not None


def _unless(here: bool, what: str, installs: str) -> Mark:
    return pytest.mark.skipif(not here, reason=f"needs {what}: {installs}")


def _unless_reason(why_not: str | None, installs: str) -> Mark:
    return pytest.mark.skipif(why_not is not None, reason=f"{why_not}: {installs}")
