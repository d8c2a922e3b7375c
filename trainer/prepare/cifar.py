"""The official archives of CIFAR-10 and CIFAR-100: pickled arrays, which are converted to PNGs without loss."""

import hashlib
import io
import pickle  # only files with known digests are unpickled
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from trainer.datasets.archive import DAMAGED, contents, opened
from trainer.datasets.encoded import Pixels
from trainer.datasets.tree import TEST
from trainer.errors import DataError, one_line
from trainer.prepare.listing import Source
from trainer.prepare.tars import tar_of_folders

ARCHIVES = ("cifar-10-python.tar.gz", "cifar-100-python.tar.gz")
SIDE = 32
# Digests of the files in the archives, from torchvision.
MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
    "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}
# Prefix of a file's name -> its split.
_HALVES = {"data_batch": "train", "test_batch": "val", "train": "train", "test": "val"}


def cifar(archive: Path, work_dir: Path) -> Source:
    """The images of an archive, which are converted to a tar in the folder `work_dir`.  Raises DataError."""
    status = archive.stat()
    target = work_dir / f"cifar-{status.st_size}-{status.st_mtime_ns}.tar"
    if not target.exists():
        part = target.with_suffix(".part")
        try:
            with (
                opened(archive) as packed,
                part.open("wb") as file,
                tarfile.open(fileobj=file, mode="w") as plain,
            ):
                _convert(packed, plain)
        except (*DAMAGED, KeyError) as error:
            raise DataError(
                f"{one_line(archive, 300)} is damaged, or not an archive of CIFAR ({one_line(error)}); get it again."
            ) from error
        part.replace(target)
    found = tar_of_folders(target, work_dir)
    return Source("cifar", archive.name, found.classes, found.train, found.val, TEST)


def _convert(packed: tarfile.TarFile, plain: tarfile.TarFile) -> None:
    """Write the images of `packed` to the tar `plain` as SPLIT/CLASS/NUMBER.png, numbered from 0 in each split."""
    found = contents(packed, lambda path: Path(path).name in MD5)
    files = {name: read_arrays(name, data) for name, data in ((Path(path).name, data) for path, data in found)}
    classes = _classes(files.pop("batches.meta" if "batches.meta" in files else "meta"))
    files.pop("meta", None)  # an archive may have both
    counts = {"train": 0, "val": 0}
    for file in sorted(files):
        half = next(half for start, half in _HALVES.items() if file.startswith(start))
        for pixels, label in _images(files[file]):
            name = f"{half}/{classes[label]}/{counts[half]:05d}.png"
            counts[half] += 1
            _add_png(plain, name, pixels)


def _classes(meta: Mapping[str, Any]) -> list[str]:
    return list(meta.get("label_names") or meta["fine_label_names"])


def _add_png(tar: tarfile.TarFile, name: str, pixels: Pixels) -> None:
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    info = tarfile.TarInfo(name)
    info.size = data.tell()
    data.seek(0)
    tar.addfile(info, data)


def _images(content: dict[str, Any]) -> Iterator[tuple[Pixels, int]]:
    """Each image, (32, 32, 3) uint8, with its label."""
    rows = content["data"].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    labels = content.get("labels") or content["fine_labels"]
    for pixels, label in zip(rows, labels, strict=True):
        yield np.ascontiguousarray(pixels, np.uint8), int(label)


def read_arrays(name: str, data: bytes) -> dict[str, Any]:
    """The content of an official file.  Raises ValueError for any other data, as unpickling may run any code."""
    if hashlib.md5(data, usedforsecurity=False).hexdigest() != MD5[name]:
        raise ValueError(f"{name} is not the official one")
    content: dict[str, Any] = pickle.loads(data, encoding="latin1")  # noqa: S301  # see above
    return content
