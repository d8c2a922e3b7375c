"""Reading shuffled images out of shards, undecoded: ours beside WebDataset, MosaicML's MDS and litdata.

python -m tests.bench.formats FOLDER [--images 10000] [--rounds 3]

FOLDER is a data set with train/CLASS/*.jpg, whose files are taken again and again.  Every library writes its own format
and reads it as its documents show, shuffled over the epoch, in one process without workers, so that the figures are of
reading alone.  Libraries that are not installed are left out.  What each delivers is counted: an epoch must hold each
image once.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.bench.report import machine, say


def originals(folder: Path, images: int) -> list[bytes]:
    """The JPEGs of the folder, over and over."""
    found = [path.read_bytes() for path in sorted(folder.glob("train/*/*"))]
    return [found[number % len(found)] for number in range(images)]


def lay_ours(folder: Path, images: int, to: Path) -> None:
    """Prepared by trainer.prepare, which WebDataset reads as well."""
    source = to.parent / "source"
    for half, count in (("train", images), ("val", 2)):
        for number, data in enumerate(originals(folder, count)):
            path = source / half / f"class-{number % 2}" / f"{number:06d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    words = [sys.executable, "-m", "trainer.prepare", str(source), str(to), "--no-resize", "--shard-mb", "64"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def read_ours(root: Path) -> Iterator[bytes]:
    """As the trainer's threads read."""
    import torch

    from trainer.config import TrainConfig
    from trainer.datasets.imagefolder import find_halves
    from trainer.datasets.order import Order
    from trainer.datasets.source import read
    from trainer.distributed.ranks import Ranks
    from trainer.distributed.session import Session
    from trainer.training import data_request

    config = TrainConfig(dataset="imagenet", data_dir=root, cache_dir=root.parent / "cache")
    source = find_halves(data_request(config, Session(Ranks(), torch.device("cpu"), 60.0), channels_last=True)).train
    numbers = source.permutation(Order(source.size, seed=0, epoch=0))
    with source.reading(numbers):
        for number in numbers.tolist():
            source.label(number)
            yield read(source, number)


def read_webdataset(root: Path) -> Iterator[bytes]:
    """Our shards by WebDataset's own library, with its shuffle of 1,000."""
    import webdataset

    urls = [str(path) for path in sorted((root / "train").glob("*.tar"))]
    for sample in webdataset.WebDataset(urls, shardshuffle=100, seed=0).shuffle(1000):
        int(sample["cls"])
        yield sample["jpg"]


def lay_mds(folder: Path, images: int, to: Path) -> None:
    """MosaicML's format."""
    from streaming import MDSWriter

    with MDSWriter(out=str(to), columns={"image": "bytes", "label": "int"}, size_limit=2**26) as writer:
        for number, data in enumerate(originals(folder, images)):
            writer.write({"image": data, "label": number % 2})


def read_mds(root: Path) -> Iterator[bytes]:
    """Its StreamingDataset, with its default shuffle."""
    from streaming import StreamingDataset

    for sample in StreamingDataset(local=str(root), shuffle=True, batch_size=64):
        int(sample["label"])
        yield sample["image"]


def lay_litdata(folder: Path, images: int, to: Path) -> None:
    """Lightning's format."""
    from litdata.streaming.writer import BinaryWriter

    to.mkdir(parents=True)
    writer = BinaryWriter(str(to), chunk_bytes=2**26)
    for number, data in enumerate(originals(folder, images)):
        writer[number] = {"image": data, "label": number % 2}
    writer.done()
    writer.merge()


def read_litdata(root: Path) -> Iterator[bytes]:
    """Its StreamingDataset, shuffled."""
    from litdata import StreamingDataset

    for sample in StreamingDataset(str(root), shuffle=True):
        int(sample["label"])
        yield sample["image"]


ARMS: dict[str, tuple[Callable[[Path, int, Path], None], Callable[[Path], Iterator[bytes]]]] = {
    "ours": (lay_ours, read_ours),
    "webdataset on our shards": (lay_ours, read_webdataset),
    "mosaicml-streaming": (lay_mds, read_mds),
    "litdata": (lay_litdata, read_litdata),
}


def measure(arm: str, root: Path) -> dict[str, Any]:
    """In a process of its own: an epoch after one that warms up."""
    read = ARMS[arm][1]
    sum(1 for _ in read(root))
    before, began = os.times(), time.perf_counter()
    count, total = 0, 0
    for data in read(root):
        count, total = count + 1, total + len(data)
    after = os.times()
    spent = sum(after[:4]) - sum(before[:4])
    return {"images": count, "bytes": total, "cpu_s": spent, "wall_s": time.perf_counter() - began}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--arm", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.arm:
        say(json.dumps(measure(given.arm, given.folder)))
        return
    with tempfile.TemporaryDirectory() as folder:
        say(f"{given.images:,} JPEGs, shuffled, undecoded; medians of {given.rounds}   ({machine()})")
        places = {}
        for arm, (lay, _) in ARMS.items():
            places[arm] = Path(folder, lay.__name__, "shards")
            if not places[arm].exists():
                places[arm].parent.mkdir()
                lay(given.folder, given.images, places[arm])
        rounds = [{arm: _child(arm, places[arm]) for arm in ARMS} for _ in range(given.rounds)]
    for arm in ARMS:
        cpu = statistics.median(one[arm]["cpu_s"] for one in rounds)
        whole = all(one[arm]["images"] == given.images for one in rounds)
        seen = "each image once" if whole else f"{rounds[0][arm]['images']:,} images"
        say(f"  {arm:<26}{given.images / cpu:>9,.0f} images/CPU-s   {seen}")


def _child(arm: str, place: Path) -> dict[str, Any]:
    words = [sys.executable, "-m", "tests.bench.formats", str(place), "--arm", arm]
    ended = subprocess.run(words, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
