"""What tests depend on and their caller may have changed: signals, environment, umask, home.

It is set where tests run, in each worker of pytest-xdist or else in pytest itself.  The process that only collects the
workers' results keeps what the user gave it: who wrote `nohup` wants it to survive the terminal.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

# Of the developer's, and nothing that a test has asked for.  MOTO_ is ours: see conftest.py.
FOREIGN = (
    "AWS_", "BASH_", "CLICOLOR", "DATABRICKS_", "DOCKER_", "GIT_", "LC_", "MLFLOW_", "MPL", "OMPI_", "PMI", "PYTHON",
    "SAGEMAKER_", "SBATCH_", "SLURM_", "SM_", "SQUEUE_", "SRUN_", "TORCH", "WANDB_", "XDG_",
)  # fmt: skip
FOREIGN_NAMES = {
    "CDPATH", "COLUMNS", "CURL_CA_BUNDLE", "ENV", "FORCE_COLOR", "LANGUAGE", "LINES", "LOCAL_RANK", "MASTER_ADDR",
    "MASTER_PORT", "NO_COLOR", "POSIXLY_CORRECT", "RANK", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE",
    "WORLD_SIZE",
}  # fmt: skip
# A GPU would be taken by whatever trains, and one is too few for two ranks: only test_gpu.py sees the user's.
USERS_GPUS = {name: os.environ[name] for name in ("CUDA_VISIBLE_DEVICES",) if name in os.environ}
OURS = {"CUDA_VISIBLE_DEVICES": "", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TERM": "xterm", "TZ": "UTC"}
SYSTEM = ("/usr/sbin", "/sbin")  # where Debian has ip and slurmctld, and a user's PATH often lacks
DEFAULT = (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

_home = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    if tests_run_here(config):
        config.stash[_home] = tempfile.mkdtemp(prefix="home-")
        set_signals()
        set_environment(config.stash[_home])
        os.umask(0o022)


def pytest_unconfigure(config: pytest.Config) -> None:
    if home := config.stash.get(_home, None):
        shutil.rmtree(home, ignore_errors=True)


def tests_run_here(config: pytest.Config) -> bool:
    """Whether this process runs tests, rather than workers of it."""
    return hasattr(config, "workerinput") or config.getoption("dist", "no") == "no"


def set_signals() -> None:
    """Dispositions as in a shell with a terminal; a program that is started inherits those that are ignored."""
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        _leave_the_terminal()
    for number in DEFAULT:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # Python's own; it starts programs with the default
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _leave_the_terminal() -> None:
    """Keeps nohup's promise for a process that heeds SIGHUP: no terminal is there to send it."""
    if os.getpgrp() != os.getpid():
        os.setsid()


def set_environment(home: str) -> None:
    """Nothing of the developer's, English, UTC, UTF-8 and an empty home."""
    # Read once and for all, lest a later expanduser finds the user's settings.
    kept = {name: value for name, value in os.environ.items() if not is_foreign(name)}
    os.environ.clear()
    os.environ.update(kept | OURS | {"HOME": home, "PATH": _path(kept)})
    for folder in (".cache", ".config"):
        Path(home, folder).mkdir()


def is_foreign(name: str) -> bool:
    """Whether an environment variable may change what a test sees."""
    return name.startswith(FOREIGN) or name in FOREIGN_NAMES or name.lower().endswith("_proxy")


def _path(environment: Mapping[str, str]) -> str:
    folders = environment.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join([*folders, *(folder for folder in SYSTEM if folder not in folders)])
