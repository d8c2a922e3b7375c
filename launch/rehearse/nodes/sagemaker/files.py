"""What goes from S3 into containers, and back: data, checkpoints, and what a training leaves."""

from __future__ import annotations

import io
import os
import posixpath
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from launch.rehearse.aws.sagemaker.account import Account

ML = Path("/opt/ml")  # what a container calls its base


class Checkpoints:
    """The folder that SageMaker keeps in S3, under `config`: CheckpointConfig of the request, or None."""

    def __init__(self, account: Account, config: dict[str, str] | None) -> None:
        self.account, self.uri = account, config["S3Uri"].rstrip("/") + "/" if config else ""
        self.folder = Path((config or {}).get("LocalPath", f"{ML}/checkpoints").rstrip("/")).relative_to(ML)
        self._kept: dict[Path, tuple[int, int]] = {}

    def restore(self, base: Path) -> None:
        """What S3 has, as a new container finds it."""
        if self.uri:
            download(self.account, self.account.under(self.uri), self.uri, base / self.folder)

    def keep(self, folders: Sequence[Path]) -> None:
        """Copies what is new in any container's folder; what was deleted there stays in S3."""
        for folder in folders if self.uri else ():
            for file in files_in(folder):
                with suppress(FileNotFoundError):  # it has just been renamed
                    self._keep(file, f"{self.uri}{file.relative_to(folder)}")

    def _keep(self, file: Path, uri: str) -> None:
        state = file.stat()
        mark = (state.st_mtime_ns, state.st_size)
        if self._kept.get(file) != mark:
            put(self.account, uri, file.read_bytes())
            self._kept[file] = mark


def files_in(folder: Path) -> list[Path]:
    """All files in a folder, also while somebody works there."""
    return [Path(where, name) for where, _, names in os.walk(folder) for name in names]


def download(account: Account, objects: Sequence[str], uri: str, folder: Path) -> None:
    """Objects under `uri`, under the names that they have in a channel's folder."""
    for found in objects:
        rest = found.removeprefix(uri)
        # A URI may end within a name, and then means whatever begins so.
        start = len(uri) if rest.startswith("/") or uri.endswith("/") else len(posixpath.dirname(uri))
        if not found.endswith("/"):
            file = folder / found[start:].lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(account.get(found))
    folder.mkdir(parents=True, exist_ok=True)


def put(account: Account, uri: str, content: bytes) -> None:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    account.put(bucket, key, content)


def packed(folders: Sequence[Path]) -> bytes:
    """A tar.gz of what is in the folders, the later over the earlier; nothing if they are empty."""
    files = {path.relative_to(folder): path for folder in folders for path in files_in(folder)}
    if not files:
        return b""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, path in sorted(files.items()):
            tar.add(path, name)
    return packed.getvalue()
