"""The ways to feed images that input.py compares: each makes a function that yields one epoch of batches.

A batch is (64, 3, 224, 224) float32, normalised, except where an arm says bytes: those have been decoded and cropped,
and a device would do the rest.
"""

import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from tests.bench.input import SHARDS

BATCH, SIDE = 64, 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Epoch = Callable[[], Iterator[Any]]


def _loader(dataset: Any, workers: int, **kwargs: Any) -> Any:
    from torch.utils.data import DataLoader

    return DataLoader(
        dataset, BATCH, shuffle=True, num_workers=workers, drop_last=True, persistent_workers=workers > 0, **kwargs
    )


def _usual_transforms() -> Any:
    from torchvision import transforms

    return transforms.Compose([
        transforms.RandomResizedCrop(SIDE), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ])  # fmt: skip


def _v2_transforms() -> Any:
    from torchvision.transforms import v2

    return v2.Compose([
        v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip(),
        v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD),
    ])  # fmt: skip


def image_folder(root: Path, workers: int) -> Epoch:
    """What everyone uses."""
    from torchvision.datasets import ImageFolder

    loader = _loader(ImageFolder(str(root / "train"), _usual_transforms()), workers)
    return lambda: iter(loader)


def _decode_with_torchvision(path: str) -> torch.Tensor:
    from torchvision.io import ImageReadMode, decode_jpeg, read_file

    return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)


def torchvision_io(root: Path, workers: int) -> Epoch:
    """torchvision.io.decode_jpeg and the second version of its transforms, on bytes."""
    from torchvision.datasets import ImageFolder

    loader = _loader(ImageFolder(str(root / "train"), _v2_transforms(), loader=_decode_with_torchvision), workers)
    return lambda: iter(loader)


def webdataset(root: Path, workers: int) -> Epoch:
    """As its README shows it: shards, shuffle, decode("pil"), map_tuple, batched, WebLoader."""
    import webdataset as wds

    shards = root / f"webdataset-{os.getpid()}"
    shards.mkdir(exist_ok=True)
    images = sorted((root / "train").glob("*/*"))
    for shard in range(workers):
        with tarfile.open(shards / f"{shard:06}.tar", "w") as tar:
            for path in images[shard::workers]:
                name = f"{path.parent.name}_{path.stem}"
                tar.add(path.resolve(), f"{name}.jpg")
                (shards / "label").write_text("0")
                tar.add(shards / "label", f"{name}.cls")
    urls = [str(shards / f"{shard:06}.tar") for shard in range(workers)]
    dataset = (
        wds.WebDataset(urls, shardshuffle=len(urls))
        .shuffle(200)
        .decode("pil")
        .to_tuple("jpg", "cls")
        .map_tuple(_usual_transforms(), int)
        .batched(BATCH, partial=False)
    )
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0)
    return lambda: iter(loader)


def litdata(root: Path, workers: int) -> Epoch:
    """Its chunks of JPEG bytes, decoded by torchvision.io, and the second version of torchvision's transforms."""
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming.writer import BinaryWriter
    from torchvision.io import ImageReadMode, decode_jpeg

    chunks = root / f"litdata-{os.getpid()}"
    writer = BinaryWriter(str(chunks), chunk_bytes="16MB")
    for number, path in enumerate(sorted((root / "train").glob("*/*"))):
        writer.add_item(number, {"image": path.read_bytes(), "class": 0})
    writer.done()
    writer.merge(1)
    transform = _v2_transforms()

    class Images(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> Any:
            item = super().__getitem__(index)
            data = torch.frombuffer(bytearray(item["image"]), dtype=torch.uint8)
            return transform(decode_jpeg(data, mode=ImageReadMode.RGB)), item["class"]

    loader = StreamingDataLoader(
        Images(str(chunks), shuffle=True, drop_last=True), batch_size=BATCH, num_workers=workers,
        persistent_workers=workers > 0,
    )  # fmt: skip
    return lambda: iter(loader)


def dali_cpu(root: Path, workers: int) -> Epoch:
    """NVIDIA DALI with every operator on the CPU: its documentation's pipeline for ImageNet."""
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH, num_threads=workers, device_id=None)
    def pipeline() -> Any:
        jpegs, labels = fn.readers.file(file_root=str(root / "train"), random_shuffle=True, name="reader")
        images = fn.decoders.image_random_crop(jpegs, device="cpu", random_area=[0.08, 1.0])
        images = fn.resize(images, size=[SIDE, SIDE], interp_type=types.INTERP_LINEAR)
        return fn.crop_mirror_normalize(
            images, mirror=fn.random.coin_flip(), dtype=types.FLOAT, output_layout="CHW",
            mean=[255 * m for m in MEAN], std=[255 * s for s in STD],
        ), labels  # fmt: skip

    pipe = pipeline()
    pipe.build()
    batches = pipe.epoch_size("reader") // BATCH

    def epoch() -> Iterator[Any]:
        for _ in range(batches):
            images, _ = pipe.run()
            yield torch.from_numpy(images.as_array()), None

    return epoch


def _nothing(row: int, pixels: Any) -> None:
    """What becomes of an image where bytes are all that is made."""


def _bare(root: Path, resize: Callable[[Any, Any, bool], Any], then: Callable[[int, Any], None] = _nothing) -> Epoch:
    import numpy as np
    import simplejpeg

    from trainer.datasets.decode import WORTHWHILE
    from trainer.datasets.order import PHILOX_BLOCK, Order, draw, random_crop

    paths = sorted((root / "train").glob("*/*"))
    draws = draw(Order(len(paths), 0, 0), range(len(paths)))
    whole = len(paths) // BATCH * BATCH
    # Memory that is used again, as the trainer has it: for the largest image, and for what is made of it.
    decoded, made = np.empty(2**26, np.uint8), np.empty((SIDE, SIDE, 3), np.uint8)

    def epoch() -> Iterator[Any]:
        for row, (path, numbers) in enumerate(zip(paths[:whole], draws, strict=False)):
            data = path.read_bytes()
            height, width, _, _ = simplejpeg.decode_jpeg_header(data)
            part = random_crop(height, width, numbers[PHILOX_BLOCK:])
            pixels = simplejpeg.decode_jpeg(
                data, min_height=height * SIDE // part.height, min_width=width * SIDE // part.width,
                min_factor=WORTHWHILE, buffer=decoded,
            )  # fmt: skip
            top, left, high, wide = (side * pixels.shape[0] // height for side in part)
            resize(pixels[top : top + high, left : left + wide], made, numbers[0] < 0.5)
            then(row % BATCH, made)
        yield from [None] * (whole // BATCH)

    return epoch


def bare_opencv(root: Path, workers: int) -> Epoch:
    """simplejpeg, then OpenCV's bilinear filter without antialiasing: one thread, bytes, not mirrored."""
    import cv2

    cv2.setNumThreads(1)
    return _bare(root, lambda pixels, to, _: cv2.resize(pixels, (SIDE, SIDE), dst=to, interpolation=cv2.INTER_LINEAR))


def bare_torch(root: Path, workers: int) -> Epoch:
    """simplejpeg, then torch's antialiased filter, as the trainer calls them: one thread, bytes, not mirrored."""
    from trainer.datasets.decode import resize

    return _bare(root, lambda pixels, to, _: resize(pixels, to))


def bare_floats(root: Path, workers: int) -> Epoch:
    """bare_torch, and then mirrored and normalised by the trainer's own calls, into one batch that is used again."""
    import numpy as np

    from trainer.datasets.base import IMAGENET
    from trainer.datasets.decode import Normaliser, resize

    normaliser = Normaliser(IMAGENET, SIDE, torch.device("cpu"), channels_last=True)
    batch = np.empty((BATCH, SIDE, SIDE, 3), np.float32)
    return _bare(root, resize, lambda row, pixels: normaliser.write(pixels, batch[row]))


def split(root: Path, workers: int, **settings: Any) -> Any:
    """The trainer's own images for training, from shards where there are any, in its default memory format."""
    import tempfile

    from trainer.config import TrainConfig
    from trainer.datasets import imagefolder
    from trainer.distributed.ranks import Ranks
    from trainer.distributed.session import Session
    from trainer.training import data_request

    cache, shards = Path(tempfile.mkdtemp(dir=root)), root / SHARDS
    folder = shards if shards.is_dir() else root
    config = TrainConfig(dataset="imagenet", data_dir=folder, workers=workers, cache_dir=cache, **settings)
    session = Session(Ranks(), torch.device("cpu"), timeout_s=60)
    return imagefolder.load_large(data_request(config, session, channels_last=True)).train


def _epoch_of(train: Any) -> Epoch:
    from trainer.datasets.order import Order

    places = [slice(start, start + BATCH) for start in range(0, train.size // BATCH * BATCH, BATCH)]
    return lambda: train.train_batches(Order(train.size, 0, 0), places)


def ours(root: Path, workers: int) -> Epoch:
    """The trainer on a CPU."""
    return _epoch_of(split(root, workers))


def ours_for_gpu(root: Path, workers: int) -> Epoch:
    """What threads do where the device is a GPU, which mirrors and normalises itself: batches of bytes.

    Their memory is lent again, as torch lends a GPU's pinned memory.
    """
    from trainer.datasets.rows import ByteRows, Memory

    memory = Memory()

    class Bytes(ByteRows):
        def __init__(self, count: int) -> None:
            super().__init__(count, SIDE, train._normalise, torch.device("cpu"))
            floats = torch.from_numpy(memory.lend((count * SIDE * SIDE * 3 // 4,)))
            self.pixels = floats.view(torch.uint8).view(count, SIDE, SIDE, 3)
            self._rows = self.pixels.numpy()

        def images(self) -> torch.Tensor:
            return self.pixels

    train = split(root, workers)
    train._rows = Bytes
    return _epoch_of(train)


def ours_by_processes(root: Path, workers: int) -> Epoch:
    """What processes do for a GPU, and this one to gather it: batches of bytes, in shared memory.

    They are copied into memory that is used again, as DataLoader's thread copies them into a GPU's pinned memory.
    """
    from trainer.datasets import streaming

    pinned = torch.empty((BATCH, SIDE, SIDE, 3), dtype=torch.uint8)
    train = split(root, workers, worker_kind="processes")
    streaming.gathered = lambda parts, *_: (torch.cat([part.pixels for part in parts], out=pinned), {})
    return _epoch_of(train)


ARMS: dict[str, Callable[[Path, int], Epoch]] = {
    "ImageFolder + DataLoader": image_folder,
    "torchvision.io + v2": torchvision_io,
    "WebDataset": webdataset,
    "litdata + v2": litdata,
    "DALI on the CPU": dali_cpu,
    "bare, bytes: OpenCV's resize": bare_opencv,
    "bare, bytes: torch's resize": bare_torch,
    "ours, bytes, by threads": ours_for_gpu,
    "ours, bytes, by processes": ours_by_processes,
    "bare, floats": bare_floats,
    "ours, floats": ours,
}
# What each of ours is compared with, besides the same calls without a loader.
OTHERS = ("ImageFolder + DataLoader", "DALI on the CPU")
BARE = {
    "ours, bytes, by threads": "bare, bytes: torch's resize",
    "ours, bytes, by processes": "bare, bytes: torch's resize",
    "ours, floats": "bare, floats",
}
