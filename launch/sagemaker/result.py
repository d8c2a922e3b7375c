"""Fetches the result of a training job: model.tar.gz, which holds the weights, the metrics and the curves."""

import errno
import gzip
import os
import shlex
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import IO

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.s3 import parse_s3
from launch.sagemaker.names import command
from launch.sagemaker.training_job import TrainingJob
from trainer.datasets.archive import DAMAGED, Part, tar_of
from trainer.errors import MachineError, one_line
from trainer.process.own_folder import anothers_link, is_anothers

MOST_ENTRIES = 100_000
MOST_PIECES = 100_000  # of files with holes, in all: a tar keeps the place of each
MOST_FOLDERS = 100  # within each other: some hundreds can be made, and not removed again


def fetch_result(aws: Aws, training_job: TrainingJob, folder: Path) -> Path:
    """Unpacks the result into `folder`/NAME and returns that.  Raises AwsError, MachineError.

    Existing files are replaced, one by one, once the whole result has been downloaded.
    """
    if training_job.model is None:
        raise AwsError(f"{training_job.name} left no result.")
    target, attach = folder / training_job.name, command("attach", training_job.job, training_job.region)
    if target.is_symlink() and is_anothers(target):  # who knows the job's name, and would choose what is replaced
        raise _is_a_strangers(target, attach)
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as packed, tempfile.TemporaryDirectory(dir=folder) as unpacked:
            _download(aws, training_job.model, packed)
            packed.seek(0)
            with tar_of(Part(gzip.GzipFile(fileobj=packed))) as tar:
                room = _Room(shutil.disk_usage(folder).free)
                tar.extractall(unpacked, filter=room.take)  # nosec B202  # which is stricter than "data"
            if link := anothers_link(Path(unpacked), target):
                raise _is_a_strangers(link, attach)
            # symlinks: were there any, what they lead to would be moved here, whatever it is.
            shutil.copytree(unpacked, target, symlinks=True, dirs_exist_ok=True, copy_function=shutil.move)
    except _TooManyFiles as error:
        fetch = f"aws s3 cp {shlex.quote(training_job.model)} . --region {training_job.region}"
        raise AwsError(
            f"{training_job.model} has {error}, which are not unpacked; look into it yourself:\n  {fetch}"
        ) from error
    except (*DAMAGED, KeyError) as error:  # KeyError: of a hard link to what is not in the archive
        elsewhere = f"; the run folder is in {training_job.checkpoints}" if training_job.checkpoints else ""
        raise AwsError(f"{training_job.model} is damaged: {one_line(error, 200)}{elsewhere}.") from error
    except OSError as error:
        raise MachineError(
            f"cannot write to {target} ({error.strerror}); free some space and fetch the result again:\n  {attach}"
        ) from error
    return target


def _is_a_strangers(link: Path, attach: str) -> MachineError:
    name = one_line(link, 300)  # of which the training's archive has said a part
    return MachineError(f"{name} is a link of another user's; remove it and fetch the result again:\n  {attach}")


class _TooManyFiles(Exception):
    """More than are unpacked, also of a training that honestly left so many."""


class _Room:
    """What an archive may take: few kB of it may say that they are millions of files, or terabytes.

    free: bytes on the disk, which a result of that size would not fit on; a file with holes has its whole size.
    """

    def __init__(self, free: int) -> None:
        self._free, self._entries, self._offset = free, 0, -1
        self._pieces = 0
        self._files = set[str]()  # that are unpacked

    def take(self, entry: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
        """tarfile's filter for what lies inside of `folder`, without devices; leaves out symbolic links.

        By these an archive gets past Python's own filter where that is older than mid-2025 (CVE-2025-4517), and every
        training of the account may write the result of another.  A hard link leads to a file that is unpacked already:
        for any other Python unpacks once more what has that name, past this filter (CVE-2025-4330), a link too.
        """
        self._count(entry)
        if entry.islnk() and entry.linkname not in self._files:
            raise tarfile.ReadError(f"a hard link to what is no file before it: {entry.linkname}")
        if entry.issym():  # before Python's filter, which refuses one that begins with a slash, as Lightning's may
            return None
        filtered = tarfile.data_filter(entry, folder)
        if entry.isreg():
            self._files.add(filtered.name)
        return filtered

    def _count(self, entry: tarfile.TarInfo) -> None:
        """Raises tarfile.ReadError, _TooManyFiles and OSError where it is more than may be taken."""
        if entry.offset <= self._offset:  # CVE-2025-8194: by a negative size, and each time all is unzipped anew
            raise tarfile.ReadError("a file whose header was read before")
        self._offset = entry.offset
        self._entries += 1
        if self._entries > MOST_ENTRIES:
            raise _TooManyFiles(f"more than {MOST_ENTRIES:,} files")
        if entry.name.count("/") > MOST_FOLDERS:
            raise tarfile.ReadError(f"more than {MOST_FOLDERS} folders within each other")
        self._pieces += len(entry.sparse or ())
        if self._pieces > MOST_PIECES:
            raise tarfile.ReadError(f"files with holes of more than {MOST_PIECES:,} pieces")
        self._free -= entry.size
        if self._free < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _download(aws: Aws, uri: str, file: IO[bytes]) -> None:
    """In chunks, as models may be larger than the memory."""
    place = parse_s3(uri)
    if place is None:
        raise AwsError(f"SageMaker's result is at {uri}, which is no place in S3.")
    with aws.in_words("s3", "GetObject"):
        body = aws.client("s3").get_object(Bucket=place.bucket, Key=place.key)["Body"]
        while chunk := body.read(2**20):
            file.write(chunk)
