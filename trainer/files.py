"""Files written whole or not at all.  Torch-free, so that the launchers use the same."""

import os
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes `content` to `path` so that a reader, or a crash, sees the old file or the new one, never a part.

    The data is on disk before the name is.  Raises OSError; then the old file is unchanged.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
