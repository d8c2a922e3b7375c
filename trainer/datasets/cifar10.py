"""CIFAR-10 from its official archive, downloaded when missing."""

import contextlib
import io
import logging
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch

from trainer.datasets.archive import DAMAGED, contents, opened
from trainer.datasets.base import CIFAR10, Data, Request
from trainer.datasets.cache import cache_path
from trainer.datasets.resident import Decoded, Images, recall_decoded, resident_data, resized
from trainer.errors import DataError, MachineError
from trainer.prepare.cifar import read_arrays

ARCHIVE = "cifar-10-python.tar.gz"
FOLDER = "cifar-10-batches-py"
PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
TRAIN, TEST = [f"data_batch_{number}" for number in range(1, 6)], ["test_batch"]
SIDE = 32
TIMEOUT_S = 30.0
# In the order of the labels, as in the archive's batches.meta.
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

log = logging.getLogger(__name__)


def load(request: Request) -> Data:
    """Load 50,000 training and 10,000 evaluation images.  Raises DataError if they are missing or damaged."""
    source = _find(request)
    side = request.image_size or SIDE
    path = cache_path(request.cache_dir, f"cifar10-{side}", source)
    decoded = recall_decoded(path, _fingerprint(source), lambda: _decode(source, side))
    return resident_data(decoded, CLASSES, CIFAR10, flip=True, request=request)


def _find(request: Request) -> Path:
    """The unpacked folder if there is one, else the archive, downloaded if missing."""
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
        with tempfile.TemporaryDirectory(dir=archive.parent) as unfinished, _bar_on_terminals(), _timeout(TIMEOUT_S):
            download_url(cifar.CIFAR10.url, unfinished, ARCHIVE, cifar.CIFAR10.tgz_md5)
            (Path(unfinished) / ARCHIVE).replace(archive)
    except (OSError, RuntimeError, HTTPException) as error:
        raise _missing(archive.parent, f"and downloading it failed ({error})") from error


@contextlib.contextmanager
def _timeout(seconds: float) -> Iterator[None]:
    """Limit how long sockets wait: without internet access each address would take minutes to fail."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


@contextlib.contextmanager
def _bar_on_terminals() -> Iterator[None]:
    """Show torchvision's progress bar on a terminal and keep it out of logs."""
    if sys.stderr.isatty():
        yield
        return
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def _fingerprint(source: Path) -> str:
    """A string that changes whenever a file of the source does."""
    files = sorted(source.iterdir()) if source.is_dir() else [source]
    return repr([(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files])


def _decode(source: Path, side: int) -> Decoded:
    try:
        arrays = {name: read_arrays(name, data) for name, data in _files(source)}
        return Decoded(_half(arrays, TRAIN, side), _half(arrays, TEST, side), classes=10)
    except (*DAMAGED, FileNotFoundError, KeyError) as error:
        raise DataError(
            f"{source} is damaged or incomplete; delete it to download it again, or replace it by {ARCHIVE} from "
            f"{PAGE}."
        ) from error
    except OSError as error:
        raise MachineError(f"cannot read {source} ({error}); check the disk, or put {ARCHIVE} elsewhere.") from error


def _files(source: Path) -> Iterator[tuple[str, bytes]]:
    """The name and content of each official file in the folder, or in the archive without unpacking it."""
    if source.is_dir():
        yield from ((name, (source / name).read_bytes()) for name in (*TRAIN, *TEST))
        return
    with opened(source) as archive:
        for path, data in contents(archive, lambda path: PurePosixPath(path).name in (*TRAIN, *TEST)):
            yield PurePosixPath(path).name, data


def _half(contents: Mapping[str, Mapping[str, Any]], names: Iterable[str], side: int) -> Images:
    """Join the named files into one half.  Raises KeyError if one is missing."""
    rows = np.concatenate([contents[name]["data"] for name in names]).reshape(-1, 3, SIDE, SIDE)
    labels = [label for name in names for label in contents[name]["labels"]]
    pixels = torch.from_numpy(np.ascontiguousarray(rows.transpose(0, 2, 3, 1)))
    return Images(resized(pixels, side), torch.tensor(labels))
