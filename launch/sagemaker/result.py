"""Fetches what a training job left: model.tar.gz, which holds the weights, the metrics and the picture."""

import gzip
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import IO

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.sagemaker.runs import Run
from trainer.errors import MachineError

DAMAGE = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error)


def fetch_result(aws: Aws, run: Run, folder: Path) -> Path:
    """Unpacks the result of `run` into `folder`/NAME and returns that.  Raises AwsError, MachineError.

    What lies there is replaced, file by file, once all of the result is here.
    """
    if run.model is None:
        raise AwsError(f"{run.name} left no result.")
    target = folder / run.name
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as packed, tempfile.TemporaryDirectory(dir=folder) as unpacked:
            _download(aws, run.model, packed)
            packed.seek(0)
            with tarfile.open(fileobj=packed, mode="r:gz") as tar:
                tar.extractall(unpacked, filter="data")  # nothing outside of it, no links, no devices
            shutil.copytree(unpacked, target, dirs_exist_ok=True, copy_function=shutil.move)
    except DAMAGE as error:
        raise AwsError(f"{run.model} is damaged: {error}; the run folder is in {run.checkpoints}.") from error
    except OSError as error:
        raise MachineError(
            f"cannot write to {target} ({error.strerror}); free some space, and fetch it with "
            f"python -m launch.sagemaker attach {run.job}"
        ) from error
    return target


def _download(aws: Aws, uri: str, file: IO[bytes]) -> None:
    """A chunk at a time: models may be larger than the memory."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    with aws.in_words("s3", "GetObject"):
        body = aws.client("s3").get_object(Bucket=bucket, Key=key)["Body"]
        while chunk := body.read(2**20):
            file.write(chunk)
