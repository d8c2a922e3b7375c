"""How Python is started in a folder that others may share."""

import sys
from pathlib import Path

TOOLKIT = Path(__file__).resolve().parents[2]


def interpreter(python: str, cwd: Path) -> tuple[str, ...]:
    """What runs `-m MODULE` in `cwd`, and takes no module from there: others may have put one there meanwhile.

    Only where the toolkit itself lies there, it may have to be taken from there.
    """
    return (python,) if cwd == TOOLKIT else (python, "-P")


def this_python() -> tuple[str, ...]:
    """The same for this Python in the current folder."""
    return interpreter(sys.executable, Path.cwd())
