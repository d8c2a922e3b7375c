"""CIFAR-10 from its official archive, downloaded when missing.  torchvision checks every byte of it."""

import contextlib
import io
import logging
import socket
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from gzip import BadGzipFile
from http.client import HTTPException
from pathlib import Path
from typing import Any

import torch

from trainer.datasets.base import Data, Request
from trainer.datasets.cache import cache_path
from trainer.datasets.decoded import recall_decoded
from trainer.datasets.normalisation import CIFAR10
from trainer.datasets.resident import Decoded, Images, resident_data, resized
from trainer.errors import DataError, MachineError

ARCHIVE = "cifar-10-python.tar.gz"
FOLDER = "cifar-10-batches-py"
PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
SIDE = 32
PATIENCE_S = 30.0
# In the order of the labels, as batches.meta in the archive has them.
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

log = logging.getLogger(__name__)


def load(request: Request) -> Data:
    """50,000 images to train on, 10,000 to evaluate.  Raises DataError when they are missing or damaged."""
    source = _find(request)
    side = request.image_size or SIDE
    path = cache_path(request.cache_dir, f"cifar10-{side}", source)
    decoded = recall_decoded(path, _fingerprint(source), lambda: _decode(source, side))
    return resident_data(decoded, CLASSES, CIFAR10, flip=True, request=request)


def _find(request: Request) -> Path:
    """The unpacked folder, else the archive, else the archive after downloading it."""
    folder, archive = request.data_dir / FOLDER, request.data_dir / ARCHIVE
    if folder.is_dir():
        return folder
    if not archive.is_file():
        if not request.download:
            raise _missing(request.data_dir, "and downloads are off")
        _download(archive)
    return archive


def _missing(data_dir: Path, why: str) -> DataError:
    return DataError(f"no CIFAR-10 in {data_dir} {why}; put {ARCHIVE} from {PAGE} there, unpacked or not.")


def _download(archive: Path) -> None:
    from torchvision.datasets import cifar
    from torchvision.datasets.utils import download_url

    log.warning("downloading CIFAR-10 (170 MB) to %s", archive)
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as unfinished, _bar_on_terminals(), _patience(PATIENCE_S):
            download_url(cifar.CIFAR10.url, unfinished, ARCHIVE, cifar.CIFAR10.tgz_md5)
            (Path(unfinished) / ARCHIVE).replace(archive)
    except (OSError, RuntimeError, HTTPException) as error:
        raise _missing(archive.parent, f"and downloading it failed ({error})") from error


@contextlib.contextmanager
def _patience(seconds: float) -> Iterator[None]:
    """Without it, a machine with no way out waits minutes for each address it tries."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


@contextlib.contextmanager
def _bar_on_terminals() -> Iterator[None]:
    """Shows torchvision's progress bar on a terminal and keeps it out of logs."""
    if sys.stderr.isatty():
        yield
        return
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def _fingerprint(source: Path) -> str:
    """Changes whenever a file of the source does."""
    files = sorted(source.iterdir()) if source.is_dir() else [source]
    return repr([(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files])


def _decode(source: Path, side: int) -> Decoded:
    try:
        if source.is_dir():
            return _read(source.parent, side)
        # Unpacked where one can surely write: data_dir may be a read-only volume.
        with tempfile.TemporaryDirectory() as unpacked, tarfile.open(source) as archive:
            archive.extractall(unpacked, filter="data")
            return _read(Path(unpacked), side)
    except (RuntimeError, tarfile.TarError, EOFError, zlib.error, BadGzipFile) as error:
        raise DataError(
            f"{source} is damaged or incomplete; delete it, and it is downloaded again, or put {ARCHIVE} from {PAGE} "
            "in its place."
        ) from error
    except OSError as error:
        raise MachineError(
            f"cannot unpack {source} into {tempfile.gettempdir()} ({error}); make room there."
        ) from error


def _read(root: Path, side: int) -> Decoded:
    """Raises RuntimeError when a file is missing or its checksum is wrong."""
    from torchvision.datasets import cifar

    train, test = cifar.CIFAR10(root, train=True), cifar.CIFAR10(root, train=False)
    return Decoded(_half(train, side), _half(test, side), classes=10)


def _half(official: Any, side: int) -> Images:
    return Images(resized(torch.from_numpy(official.data).contiguous(), side), torch.tensor(official.targets))
