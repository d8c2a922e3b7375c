"""A rehearsal of --through model-trainer: which Python its launcher has, and what this machine must have.

SageMaker's SDK 3 cannot stand beside SDK 2, which the extra rehearse-sagemaker brings; so the launcher, which is a
process of its own, may have a Python of its own.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from launch.core.errors import NotSetUp
from launch.rehearse.nodes.sagemaker.network import why_no_network
from launch.rehearse.stage.scene import RehearsedJob
from trainer.errors import SettingsError

WAY, PACKAGE = "model-trainer", "sagemaker-train"
VARIABLE = "DDP_SDK_3_PYTHON"
SSHD = Path("/usr/sbin/sshd")  # which SDK 3's MPI driver starts, also for one host


def is_way_of(job: RehearsedJob) -> bool:
    return job.options.get("through") == WAY


def python_for(job: RehearsedJob) -> str:
    """The Python of the launcher.  Raises NotSetUp, SettingsError."""
    if not is_way_of(job):
        return sys.executable
    _check_machine(job)
    if _is_here():
        return sys.executable
    named = job.env.get(VARIABLE)
    if named and Path(named).is_file():
        return named
    raise NotSetUp(
        f"a rehearsal --through {WAY} needs SageMaker's SDK 3 in a venv of its own: in it run pip install -c "
        f"constraints.txt -e '.[aws]' and pip install -r infra/locks/sagemaker-train.txt, and name its Python: "
        f"{VARIABLE}=VENV/bin/python."
    )


def _check_machine(job: RehearsedJob) -> None:
    """SDK 3's drivers have /opt/ml and the host's names in them."""
    if why := why_no_network():
        raise SettingsError(f"a rehearsal --through {WAY} {why}; rehearse --through boto3, or run it as root.")
    if job.options.get("distribution") == "torch_distributed":
        return
    if job.nodes > 1:
        raise SettingsError(
            f"a rehearsal --through {WAY} has no ssh between instances, which SDK 3's mpirun takes; rehearse with "
            "--nodes 1 or --distribution torch_distributed, or --through boto3."
        )
    if not SSHD.exists():
        raise SettingsError(f"SDK 3's mpirun takes {SSHD}; apt-get install openssh-server, or give --through boto3.")


def _is_here() -> bool:
    try:
        return bool(version(PACKAGE))
    except PackageNotFoundError:
        return False
