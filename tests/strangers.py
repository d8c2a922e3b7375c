"""Another user of the machine, for tests of what he may have left."""

import os
from pathlib import Path

import pytest

ANOTHER = 4_000_123  # a user's id that nobody has


def given_to_another(path: Path) -> Path:
    """Makes `path`, or the link of that name, another user's.  Skips the test where only root may."""
    try:
        os.chown(path, ANOTHER, -1, follow_symlinks=False)
    except PermissionError:
        pytest.skip("only root can give files to somebody else")
    return path
