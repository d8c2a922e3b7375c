"""Results kept on disk between starts.  Safe when several processes read and write at once: a file is
either whole or absent.  What is kept must be rebuildable: a file that cannot be read counts as absent.
A file holds no code: trainer/state/plain.py.
"""

import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer.errors import one_line
from trainer.files import write_atomically
from trainer.state import plain

Content = dict[str, Any]

VERSION = 7  # to be raised with any change to what is kept, or to how it is made
SUFFIX = ".safetensors"

log = logging.getLogger(__name__)


def cache_path(cache_dir: Path, kind: str, source: Path) -> Path:
    """The file that holds what was made of the folder `source`; `kind` says what and how."""
    digest = hashlib.sha256(os.fsencode(source.resolve())).hexdigest()
    return cache_dir.expanduser() / f"{kind}-{digest[:12]}{SUFFIX}"


def recall(path: Path, is_current: Callable[[Content], bool], build: Callable[[], Content]) -> Content:
    """Reads `path` if it is current; else calls `build` and keeps its result there for the next start.

    A content holds tensors, numbers, strings, lists and dicts.  Tensors read back are mapped from the
    file, so that processes of one machine share the memory.
    """
    found = _read(path)
    if found is not None and is_current(found):
        return found
    built = build()
    try:
        _write(path, built)
    except OSError as error:
        log.warning("could not keep %s (%s): the next start is slow again; --cache-dir moves it", path, error)
    return built


def _read(path: Path) -> Content | None:
    try:
        if not path.is_file():  # raises where the folder may not be entered
            return None
    except OSError:
        return None
    try:
        kept = plain.read_mapped(path)
        if kept["version"] != VERSION:
            return None
        content: Content = kept["content"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s is damaged and will be made again (%s)", path, one_line(error))
        return None
    return content


def _write(path: Path, content: Content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, plain.pieces({"version": VERSION, "content": content}))
