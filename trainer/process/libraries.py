"""What torch and the libraries below it read from the environment when they are loaded, and the cores they share."""

import os
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

from trainer.errors import SettingsError


def usable_cores() -> int:
    """The number of cores that this process may run on; on macOS, all of them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def set_defaults(env: MutableMapping[str, str]) -> None:
    """What holds in every training, unless the user has set it; to be called before torch is imported."""
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):  # the second is the name in older versions
        env.setdefault(name, "2000")  # torch's newest collectives, which a stall shows
    # Where a rank is lost, its name says more than pages about sockets.
    env.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if "OMP_WAIT_POLICY" not in env:
        # OpenMP's threads spin for milliseconds before they sleep.  Beside other work that took 19 s of processor where
        # 8 s do (four epochs of digits, measured); a fraction of a millisecond is enough between two operations.
        env.setdefault("GOMP_SPINCOUNT", "10000")  # GNU's, of torch's Linux wheels
        env.setdefault("KMP_BLOCKTIME", "1")  # Intel's and LLVM's, in ms


def name_compile_cache(env: MutableMapping[str, str]) -> None:
    """Names torch's compiler a folder of this user's own, whose code it loads again; one that is named already stays.

    To be called before torch is imported.  Raises SettingsError if the folder cannot be made.
    """
    if not env.get("TORCHINDUCTOR_CACHE_DIR"):
        env["TORCHINDUCTOR_CACHE_DIR"] = str(own_folder("compiled", remedy="set TMPDIR to a folder of your own"))


def own_folder(name: str, *, remedy: str) -> Path:
    """The folder for `name`, which only this user may read; made if it is not there.

    Raises SettingsError if it cannot be made.
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
