"""Keeps the driver's library that torch uses from being one that others have put where a training starts.

NVIDIA's cuSPARSELt, which torch loads as it is imported, looks for libcuda.so.1 in the current folder as well, and
before it looks where the driver is: an empty part of its RUNPATH stands for that (0.8.1).  No flag of Python's tells it
not to.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

LIBRARY = "nvidia/cusparselt/lib/libcusparseLt.so.*[0-9]"


class BeforeTorch:
    """Loads cuSPARSELt when torch is imported for the first time, a moment before torch does."""

    def find_spec(self, name: str, *_: object) -> None:
        """Finds no module; others do."""
        if name == "torch":
            sys.meta_path.remove(self)
            load_from_root()


def load_from_root() -> None:
    """Loads the library that torch would load, from the root folder, in which nobody else can write.

    torch then finds it loaded.  Does nothing where it is not there.
    """
    library = next((path for top in sys.path if Path(top).is_absolute() for path in Path(top).glob(LIBRARY)), None)
    if library is None:
        return
    import ctypes

    here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir("/")
        with suppress(OSError):  # torch says what is wrong with it
            ctypes.CDLL(str(library))
    finally:
        os.fchdir(here)
        os.close(here)
