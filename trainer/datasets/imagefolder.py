"""Images by class, in folders or shards.  Small ones are decoded once and kept in memory; large ones are streamed."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from trainer.datasets.base import IMAGENET, Data, Request
from trainer.datasets.cache import cache_path, indexed_files
from trainer.datasets.decode import crop
from trainer.datasets.encoded import Pixels, UnreadableError, sides_of
from trainer.datasets.manifest import find_manifest
from trainer.datasets.order import Crop, middle_crop
from trainer.datasets.remote import open_remote
from trainer.datasets.resident import Decoded, Images, fits, recall_decoded, resident_data
from trainer.datasets.source import FolderSource, Halves, Source, open_folder, read
from trainer.datasets.streaming import SIDE, stream
from trainer.datasets.tree import find_tree
from trainer.errors import DataError, SettingsError

SMALL = 64  # pixels per side
SAMPLE = 256  # images sampled for their size; more if there are more classes
CHUNK = 256  # images a thread decodes at a time


def load(request: Request) -> Data:
    """Load the images in data_dir, in memory if they are small.  Raises DataError if the data cannot be used."""
    found = find_halves(request)
    sides = _sides_in(found.train, request.workers)
    largest = max(sides)
    size = request.image_size or (largest if largest <= SMALL else SIDE)
    if min(size, largest) <= SMALL and fits(found.train.size + found.evaluation.size, size):
        _refuse_streaming_options(request)
        data = _resident(request, found, size)
    else:
        data = stream(request, found, size)
    return replace(data, eval_split=found.eval_split, sizes="" if request.image_size else _choice(sides, size))


def load_large(request: Request) -> Data:
    """Stream all images, as for ImageNet, by default in crops of 224 pixels.  Raises DataError."""
    return stream(request, find_halves(request), request.image_size or SIDE)


def find_halves(request: Request) -> Halves:
    """Both halves of the data in --data-dir or --data-url: images in folders, or shards.  Raises DataError."""
    if request.data_url is not None:
        return open_remote(request, request.data_url)
    manifest = find_manifest(request.data_dir)
    if manifest is not None:
        return open_folder(request, manifest)
    tree = find_tree(request.data_dir)
    train, evaluation = indexed_files(request.cache_dir, tree)
    return Halves(FolderSource(train), FolderSource(evaluation), tree.classes, request.data_dir, tree.evaluation.name)


def _choice(sides: Sequence[int], size: int) -> str:
    """A remark on the size chosen for images of several sizes, and why; "" if all have the same."""
    least, most = min(sides), max(sides)
    if least == most:
        return ""
    why = "the largest" if most <= SMALL else f"as for any set with images of more than {SMALL} px"
    return f"image sizes are mixed, {least} to {most} px: {size} px was chosen, {why}; --image-size changes it"


def _refuse_streaming_options(request: Request) -> None:
    """Raise SettingsError for options that only streamed images can have."""
    if request.first_size is not None or request.decodes_on_gpu:
        flag = f"--image-size-start {request.first_size}" if request.first_size else "--decode gpu"
        raise SettingsError(
            f"{flag} needs images that are streamed, and these are small and kept in memory; drop it, or use "
            "--dataset imagenet."
        )


def _sides_in(source: Source, workers: int) -> Sequence[int]:
    """The longer sides of a sample of the images.  SIDE if none can be read, so that streaming reports them."""
    numbers = source.sample(SAMPLE)
    with source.reading(numbers), ThreadPoolExecutor(workers) as threads:
        sides = threads.map(partial(_longer_side, source), numbers.tolist())
        return [side for side in sides if side] or [SIDE]


def _longer_side(source: Source, number: int) -> int:
    try:
        return max(sides_of(read(source, number)))
    except UnreadableError:
        return 0


def _resident(request: Request, found: Halves, size: int) -> Data:
    path = cache_path(request.cache_dir, f"images-{size}", found.place)
    decoded = recall_decoded(
        path,
        fingerprint(found.train, found.evaluation),
        lambda: Decoded(
            decode_all(found.train, size, request.workers),
            decode_all(found.evaluation, size, request.workers),
            classes=len(found.classes),
        ),
    )
    return resident_data(decoded, found.classes, IMAGENET, flip=True, request=request)


def fingerprint(*halves: Source) -> str:
    """A digest that changes whenever an image is added, removed or modified.  Reads no image."""
    return hashlib.sha256(" ".join(half.fingerprint() for half in halves).encode()).hexdigest()


def decode_all(source: Source, size: int, workers: int) -> Images:
    """Decode all images to centre crops resized to `size`.  Raises DataError if none can be read."""
    pixels = np.empty((source.size, size, size, 3), np.uint8)
    rows = range(source.size)
    with source.reading(torch.arange(source.size)), ThreadPoolExecutor(workers) as threads:
        chunks = [rows[start : start + CHUNK] for start in rows[::CHUNK]]
        bad: dict[int, str] = {}
        for part in threads.map(lambda chunk: _decode_rows(source, pixels, chunk), chunks):
            bad.update(part)
    if len(bad) == len(rows):
        raise DataError(f"none of the {len(bad)} images in {source.place} could be read ({bad[0]}); are they images?")
    kept = np.ones(len(rows), bool)
    kept[list(bad)] = False
    labels = torch.tensor([source.label(row) for row in rows])[torch.from_numpy(kept)]
    return Images(
        torch.from_numpy(pixels[kept] if bad else pixels), labels, {source.shown(row): why for row, why in bad.items()}
    )


def _decode_rows(source: Source, pixels: Pixels, rows: range) -> dict[int, str]:
    """Fill these rows of `pixels`.  Return the unreadable rows with the reasons."""
    bad = {}
    for row in rows:
        try:
            pixels[row] = crop(read(source, row), _square, pixels.shape[1])
        except UnreadableError as error:
            bad[row] = str(error)
    return bad


def _square(height: int, width: int) -> Crop:
    return middle_crop(height, width, share=1.0)
