"""Fetches the result of a training job: model.tar.gz, which holds the weights, the metrics and the curves."""

import gzip
import shutil
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import IO

from launch.aws.client import Aws
from launch.aws.names import parse_s3
from launch.aws.results import fetch_run
from launch.core.errors import AwsError
from launch.core.jobs import Choice, Results
from launch.sagemaker.names import command
from launch.sagemaker.training_job import TrainingJob
from trainer.datasets.archive import DAMAGED, Part, tar_of
from trainer.errors import MachineError, one_line
from trainer.files import below

ARCHIVE = "model.tar.gz"


def fetch_job(aws: Aws, training_job: TrainingJob, folder: Path, choice: Choice) -> Results:
    """Fetch the result, if the job has one and `choice` its archive, and the chosen files of its run folder.

    Raises AwsError, MachineError.
    """
    target, rest = folder / training_job.start, command("fetch", training_job.job, training_job.region, "--all")
    files = dict[str, int]()
    if training_job.is_over and training_job.model is not None and choice({ARCHIVE: 0}):
        fetch_result(aws, training_job, folder)
        files = {str(path.relative_to(target)): path.stat().st_size for path in below(target) if path.is_file()}
    if training_job.folder is None:
        return Results(target, files)
    run = fetch_run(aws, training_job.folder, target, choice, rest)
    return replace(run, files={**files, **run.files})


def fetch_result(aws: Aws, training_job: TrainingJob, folder: Path) -> Path:
    """Unpack the result into `folder`/NAME and return that path.  Raises AwsError, MachineError.

    Existing files are replaced once the whole result has been downloaded.
    """
    if training_job.model is None:
        raise AwsError(f"{training_job.name} left no result.")
    target = folder / training_job.start
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as packed, tempfile.TemporaryDirectory(dir=folder) as unpacked:
            _download(aws, training_job.model, packed)
            packed.seek(0)
            with tar_of(Part(gzip.GzipFile(fileobj=packed))) as tar:
                tar.extractall(unpacked, filter=_Inside().take)  # noqa: S202  # stricter than "data"
            # symlinks=True: copy links instead of moving their targets, should there be any.
            shutil.copytree(unpacked, target, symlinks=True, dirs_exist_ok=True, copy_function=shutil.move)
    except (*DAMAGED, KeyError) as error:  # KeyError: a hard link to a file that is not in the archive
        elsewhere = f"; the run folder is in {training_job.checkpoints}" if training_job.checkpoints else ""
        raise AwsError(f"{training_job.model} is damaged: {one_line(error, 200)}{elsewhere}.") from error
    except OSError as error:
        again = command("fetch", training_job.job, training_job.region)
        raise MachineError(
            f"cannot write to {target} ({error.strerror}); free some space and fetch the result again:\n  {again}"
        ) from error
    return target


class _Inside:
    """A filter for tarfile that accepts only files inside the folder, without devices and symbolic links.

    Links escape Python's own filter in versions before mid-2025 (CVE-2025-4517).  A hard link must point to a file that
    is already unpacked: for others Python extracts the member of that name again, past this filter (CVE-2025-4330).
    """

    def __init__(self) -> None:
        self._files = set[str]()  # already unpacked

    def take(self, entry: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
        if entry.islnk() and entry.linkname not in self._files:
            raise tarfile.ReadError(f"a hard link to a file that does not precede it: {entry.linkname}")
        if entry.issym():  # before Python's filter, which refuses one that begins with a slash, as Lightning's may
            return None
        filtered = tarfile.data_filter(entry, folder)
        if entry.isreg():
            self._files.add(filtered.name)
        return filtered


def _download(aws: Aws, uri: str, file: IO[bytes]) -> None:
    """Download in chunks, as models may be larger than memory."""
    place = parse_s3(uri)
    if place is None:
        raise AwsError(f"SageMaker's result is at {uri}, which is not an S3 URI.")
    with aws.in_words("s3", "GetObject"):
        body = aws.client("s3").get_object(Bucket=place.bucket, Key=place.key)["Body"]
        while chunk := body.read(2**20):
            file.write(chunk)
