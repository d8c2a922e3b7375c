"""Copy between containers and AWS: data, checkpoints and results in S3, lines in CloudWatch, and metrics."""

from __future__ import annotations

import io
import os
import posixpath
import re
import tarfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from launch.aws.names import is_path, known_s3
from launch.rehearse.aws.sagemaker.account import SageMakerAccount
from launch.rehearse.aws.sagemaker.changes import measured
from launch.rehearse.aws.sagemaker.jobs import TrainingJob

ML = Path("/opt/ml")  # a container's own name for its base


class Checkpoints:
    """The checkpoint folder, which SageMaker copies to S3.  config: CheckpointConfig of the request, or None."""

    def __init__(self, account: SageMakerAccount, config: dict[str, str] | None) -> None:
        self.account, self.uri = account, config["S3Uri"].rstrip("/") + "/" if config else ""
        self.folder = Path((config or {}).get("LocalPath", f"{ML}/checkpoints").rstrip("/")).relative_to(ML)
        self._kept: dict[Path, tuple[int, int]] = {}

    def restore(self, base: Path) -> None:
        """Copy the checkpoints in S3 into a new container."""
        if self.uri:
            download(self.account, self.account.under(self.uri), self.uri, base / self.folder)

    def keep(self, folders: Sequence[Path]) -> None:
        """Copy what is new in the containers' folders to S3, where deleted files stay."""
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
    """All files in a folder, which may change while it is read."""
    return [Path(where, name) for where, _, names in os.walk(folder) for name in names]


def download(account: SageMakerAccount, objects: Sequence[str], uri: str, folder: Path) -> None:
    """Copy objects under `uri` into a channel's folder, under SageMaker's names."""
    for stored in objects:
        rest = stored.removeprefix(uri)
        # A URI is a prefix, which may end within a name.
        start = len(uri) if rest.startswith("/") or uri.endswith("/") else len(posixpath.dirname(uri))
        name = stored[start:].lstrip("/")
        if is_path(name):  # not a folder, and not outside of this one
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(account.get(stored))
    folder.mkdir(parents=True, exist_ok=True)


def put(account: SageMakerAccount, uri: str, content: bytes) -> None:
    place = known_s3(uri)
    account.put(place.bucket, place.key, content)


def packed(folders: Sequence[Path]) -> bytes:
    """A tar.gz of the files in the folders, later ones over earlier ones; empty if there are none."""
    files = {path.relative_to(folder): path for folder in folders for path in files_in(folder)}
    if not files:
        return b""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, path in sorted(files.items()):
            tar.add(path, name)
    return packed.getvalue()


def line_handler(account: SageMakerAccount, job: TrainingJob, number: int) -> Callable[[str], None]:
    """A function that puts lines of container `number`, from 1, into CloudWatch, and its metrics into the job."""
    host = f"algo-{number}"
    stream = f"{job.name}/{host}-{int(time.time() * 1000)}"
    metrics = [
        (row["Name"], re.compile(row["Regex"]))
        for row in job.request["AlgorithmSpecification"].get("MetricDefinitions", [])
    ]

    def on_line(line: str) -> None:
        account.log(job.name, host, [line or " "], stream)  # CloudWatch takes no empty ones
        for metric, regex in metrics:
            if match := regex.search(line):
                with suppress(ValueError, IndexError):  # not a number, no group
                    measured(job, metric, float(match[1]))

    return on_line
