"""Fetches what a training job left: model.tar.gz, which holds the weights, the metrics and the picture."""

import gzip
import tarfile
import tempfile
import zlib
from pathlib import Path

from launch.aws import Aws
from launch.errors import AwsError
from launch.sagemaker.runs import Run
from trainer.errors import MachineError


def fetch_result(aws: Aws, run: Run, folder: Path) -> Path:
    """Unpacks the result of `run` into `folder`/NAME and returns that.  Raises AwsError, MachineError."""
    if run.model is None:
        raise AwsError(f"{run.name} left no result.")
    bucket, _, key = run.model.removeprefix("s3://").partition("/")
    target = folder / run.name
    with tempfile.TemporaryFile() as packed:
        with aws.in_words("s3", "GetObject"):
            aws.client("s3").download_fileobj(bucket, key, packed)
        packed.seek(0)
        try:
            target.mkdir(parents=True, exist_ok=True)
            with tarfile.open(fileobj=packed, mode="r:gz") as tar:
                tar.extractall(target, filter="data")  # nothing outside of it, no links, no devices
        except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise AwsError(f"{run.model} is damaged: {error}; the run folder is in {run.checkpoints}.") from error
        except OSError as error:
            raise MachineError(
                f"cannot write to {target} ({error.strerror}); fetch it with aws s3 cp {run.model} ."
            ) from error
    return target
