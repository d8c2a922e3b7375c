"""Any tree of class folders.  Small images are decoded once and kept in memory; big ones are streamed."""

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from trainer.datasets.base import Data, Request
from trainer.datasets.cache import cache_path
from trainer.datasets.crops import Crop, middle_crop
from trainer.datasets.decode import Pixels, image_sides, read_crop
from trainer.datasets.decoded import recall_decoded
from trainer.datasets.normalisation import IMAGENET
from trainer.datasets.resident import Decoded, Images, fits, resident_data
from trainer.datasets.streaming import SIDE, stream
from trainer.datasets.tree import Files, Tree, find_tree, first_files, list_files
from trainer.datasets.unreadable import UnreadableError
from trainer.errors import DataError

SMALL = 64  # pixels a side
SAMPLE = 8  # images looked at to tell small from big
CHUNK = 256  # images a thread decodes at a time


def load(request: Request) -> Data:
    """The tree in data_dir, mirrored for training.  Raises DataError when the tree is not as it should be."""
    tree = find_tree(request.data_dir)
    largest = _largest_side(tree)
    size = request.image_size or (largest if largest <= SMALL else SIDE)
    if min(size, largest) <= SMALL:
        train, evaluation = list_files(tree.train, tree.classes), list_files(tree.evaluation, tree.classes)
        if fits(len(train.names) + len(evaluation.names), size):
            return _resident(request, train, evaluation, tree.classes, size)
    return stream(request, tree, size)


def _largest_side(tree: Tree) -> int:
    """Of the first images that can be read; a big number when none can, since streaming will say which."""
    sides = [0]
    for path in first_files(tree, SAMPLE):
        try:
            sides += image_sides(path)
        except UnreadableError:
            continue
    return max(sides) or SIDE


def _resident(request: Request, train: Files, evaluation: Files, names: Sequence[str], size: int) -> Data:
    path = cache_path(request.cache_dir, f"images-{size}", request.data_dir)
    decoded = recall_decoded(
        path,
        fingerprint(train, evaluation),
        lambda: Decoded(
            decode_files(train, size, request.workers),
            decode_files(evaluation, size, request.workers),
            classes=train.labels[-1] + 1,
        ),
    )
    return resident_data(decoded, names, IMAGENET, flip=True, request=request)


def fingerprint(*halves: Files) -> str:
    """Changes whenever a file is added, removed or written to.  Reads no file."""
    digest = hashlib.sha256()
    for files in halves:
        prefix = f"{files.root}{os.sep}"  # a Path for each file would double the time
        for name in files.names:
            digest.update(os.fsencode(f"{name}\0{_version(prefix + name)}\n"))
    return digest.hexdigest()


def _version(path: str) -> str:
    """What changes when a file is written to; decoding says what is wrong with one that is not there."""
    try:
        status = os.stat(path)
    except OSError:
        return "unreadable"
    return f"{status.st_size} {status.st_mtime_ns}"


def decode_files(files: Files, size: int, workers: int) -> Images:
    """All images, as their middle squares resized to `size`.  Raises DataError when not one can be read."""
    pixels = np.empty((len(files.names), size, size, 3), np.uint8)
    rows = range(len(files.names))
    with ThreadPoolExecutor(workers) as threads:
        chunks = [rows[start : start + CHUNK] for start in rows[::CHUNK]]
        bad: dict[int, str] = {}
        for part in threads.map(lambda chunk: _decode_rows(files, pixels, chunk), chunks):
            bad.update(part)
    if len(bad) == len(rows):
        raise DataError(f"not one of the {len(bad)} images in {files.root} could be read ({bad[0]}); are they images?")
    kept = np.ones(len(rows), bool)
    kept[list(bad)] = False
    labels = torch.tensor(files.labels)[torch.from_numpy(kept)]
    return Images(
        torch.from_numpy(pixels[kept] if bad else pixels), labels, {files.shown(row): why for row, why in bad.items()}
    )


def _decode_rows(files: Files, pixels: Pixels, rows: range) -> dict[int, str]:
    """Fills these rows of `pixels`; returns the ones whose file is unreadable, and why."""
    bad = {}
    for row in rows:
        try:
            pixels[row] = read_crop(files.root / files.names[row], _square, pixels.shape[1])
        except UnreadableError as error:
            bad[row] = str(error)
    return bad


def _square(height: int, width: int) -> Crop:
    return middle_crop(height, width, share=1.0)
