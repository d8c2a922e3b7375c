"""Fetches the result of a training job: model.tar.gz, which holds the weights, the metrics and the curves."""

import gzip
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import IO

from launch.aws.client import Aws
from launch.aws.names import parse_s3
from launch.core.errors import AwsError
from launch.sagemaker.names import command
from launch.sagemaker.training_job import TrainingJob
from trainer.datasets.archive import DAMAGED, Part, tar_of
from trainer.errors import MachineError, one_line


def fetch_result(aws: Aws, training_job: TrainingJob, folder: Path) -> Path:
    """Unpacks the result into `folder`/NAME and returns that.  Raises AwsError, MachineError.

    Existing files are replaced, one by one, once the whole result has been downloaded.
    """
    if training_job.model is None:
        raise AwsError(f"{training_job.name} left no result.")
    target, attach = folder / training_job.name, command("attach", training_job.job, training_job.region)
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as packed, tempfile.TemporaryDirectory(dir=folder) as unpacked:
            _download(aws, training_job.model, packed)
            packed.seek(0)
            with tar_of(Part(gzip.GzipFile(fileobj=packed))) as tar:
                tar.extractall(unpacked, filter=_Inside().take)  # nosec B202  # which is stricter than "data"
            # symlinks: were there any, what they lead to would be moved here, whatever it is.
            shutil.copytree(unpacked, target, symlinks=True, dirs_exist_ok=True, copy_function=shutil.move)
    except (*DAMAGED, KeyError) as error:  # KeyError: of a hard link to what is not in the archive
        elsewhere = f"; the run folder is in {training_job.checkpoints}" if training_job.checkpoints else ""
        raise AwsError(f"{training_job.model} is damaged: {one_line(error, 200)}{elsewhere}.") from error
    except OSError as error:
        raise MachineError(
            f"cannot write to {target} ({error.strerror}); free some space and fetch the result again:\n  {attach}"
        ) from error
    return target


class _Inside:
    """tarfile's filter for what lies inside of the folder, without devices and symbolic links.

    By links an archive gets past Python's own filter where that is older than mid-2025 (CVE-2025-4517), and every
    training of the account may write the result of another.  A hard link leads to a file that is unpacked already:
    for any other Python unpacks once more what has that name, past this filter (CVE-2025-4330), a link too.
    """

    def __init__(self) -> None:
        self._files = set[str]()  # that are unpacked

    def take(self, entry: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
        if entry.islnk() and entry.linkname not in self._files:
            raise tarfile.ReadError(f"a hard link to what is no file before it: {entry.linkname}")
        if entry.issym():  # before Python's filter, which refuses one that begins with a slash, as Lightning's may
            return None
        filtered = tarfile.data_filter(entry, folder)
        if entry.isreg():
            self._files.add(filtered.name)
        return filtered


def _download(aws: Aws, uri: str, file: IO[bytes]) -> None:
    """In chunks, as models may be larger than the memory."""
    place = parse_s3(uri)
    if place is None:
        raise AwsError(f"SageMaker's result is at {uri}, which is no place in S3.")
    with aws.in_words("s3", "GetObject"):
        body = aws.client("s3").get_object(Bucket=place.bucket, Key=place.key)["Body"]
        while chunk := body.read(2**20):
            file.write(chunk)
