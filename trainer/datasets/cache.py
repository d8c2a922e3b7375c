"""Results kept on disk between starts.  Safe when several processes read and write at once: a file is
either whole or absent.  What is kept must be rebuildable: a damaged file counts as absent.
"""

import hashlib
import logging
import os
import pickle  # nosec B403  # only for its error
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Content = dict[str, Any]

VERSION = 1  # to be raised with any change to what is kept, or to how it is made

log = logging.getLogger(__name__)


def cache_path(cache_dir: Path, kind: str, source: Path) -> Path:
    """The file that holds what was made of the folder `source`; `kind` says what and how."""
    digest = hashlib.sha256(os.fsencode(source.resolve())).hexdigest()
    return cache_dir.expanduser() / f"{kind}-{digest[:12]}.pt"


def recall(path: Path, is_current: Callable[[Content], bool], build: Callable[[], Content]) -> Content:
    """What `path` holds if that is current, else what `build` makes, then kept for the next start.

    A content holds tensors, numbers, strings, lists and dicts.  Tensors read back are mapped from the
    file, so that processes of one machine share the memory.
    """
    found = _read(path)
    if found is not None and is_current(found):
        return found
    built = build()
    try:
        _write(path, built)
    except (OSError, RuntimeError) as error:
        # torch.save reports a full disk as a RuntimeError.
        log.warning("could not keep %s (%s): the next start is slow again; --cache-dir moves it", path, error)
    return built


def _read(path: Path) -> Content | None:
    try:
        if not path.is_file():  # raises where the folder may not be entered
            return None
    except OSError:
        return None
    try:
        content = torch.load(path, mmap=True, weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
        log.warning("%s is damaged and will be made again (%s)", path, error)
        return None
    return content if isinstance(content, dict) and content.get("version") == VERSION else None


def _write(path: Path, content: Content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save({"version": VERSION, **content}, file)
        Path(name).chmod(0o644)  # mkstemp's 0600 would lock the others out of a cache that a team shares
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
