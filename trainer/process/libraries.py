"""Environment variables that torch and its libraries read when they are loaded, and the usable cores."""

import os
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

from trainer.errors import SettingsError


def usable_cores() -> int:
    """The number of cores that this process may use; on macOS, all of them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def set_defaults(env: MutableMapping[str, str]) -> None:
    """Set defaults for every training, unless the user has set them.  Call before torch is imported."""
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):  # the second in older versions
        env.setdefault(name, "2000")  # number of recent collectives recorded, to be shown after a stall
    # When a rank is lost, torch prints pages about sockets; our own error is enough.
    env.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if "OMP_WAIT_POLICY" not in env:
        # OpenMP's threads spin for milliseconds before they sleep.  On a busy machine that took 19 s of processor time
        # instead of 8 s (four epochs of digits); a fraction of a millisecond is enough between two operations.
        env.setdefault("GOMP_SPINCOUNT", "10000")  # GNU's, of torch's Linux wheels
        env.setdefault("KMP_BLOCKTIME", "1")  # Intel's and LLVM's, in ms


def name_compile_cache(env: MutableMapping[str, str]) -> None:
    """Set a private cache folder for torch.compile, unless one is set: it runs code from there.

    Call before torch is imported.  Raises SettingsError if the folder cannot be created.
    """
    if not env.get("TORCHINDUCTOR_CACHE_DIR"):
        env["TORCHINDUCTOR_CACHE_DIR"] = str(own_folder("compiled", remedy="set TMPDIR to a folder of your own"))


def own_folder(name: str, *, remedy: str) -> Path:
    """A temporary folder that only this user may read, created if missing.

    Raises SettingsError if it cannot be created.
    """
    try:
        folder = Path(tempfile.gettempdir()) / f"aws-ddp-toolkit-{name}-{os.getuid()}"
    except OSError as error:
        raise SettingsError(f"there is no folder in which temporary files can be written; {remedy}.") from error
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"cannot make {folder} ({error.strerror}); {remedy}.") from error
    return folder
