"""Seconds and memory until a prepared data set of ImageNet's size is ready, from a disk: the index is made up.

python -m tests.bench.shard_start [--images 1281167] [--rounds 3]
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.bench.report import machine, say
from trainer.datasets.entries import ENTRY, index_bytes
from trainer.datasets.manifest import Half, Index, Manifest, Shard, Splits

IN_SHARD, LENGTH = 2_000, 30_000  # images of a shard, bytes of an image
VAL = 50_000
CLASSES = 1000


def lay(root: Path, images: int) -> None:
    """A prepared folder whose shards have the right sizes and nothing in them."""
    splits = Splits(train=half(root, "train", images), val=half(root, "val", VAL))
    names = tuple(f"n{number:08d}" for number in range(CLASSES))
    made = Manifest(
        name="imagenet", classes=names, resize=256, quality=92, splits=splits, source={"images": images}, bad_images=0
    )
    (root / "manifest.json").write_text(made.as_json())


def half(root: Path, name: str, images: int) -> Half:
    """One half of it."""
    (root / name).mkdir(parents=True)
    rng, each = np.random.default_rng(0), LENGTH + 1536
    entries = np.zeros(images, ENTRY)
    place = rng.permutation(images)
    entries["shard"], entries["offset"] = place // IN_SHARD, place % IN_SHARD * each + 512
    entries["length"], entries["label"] = LENGTH, np.arange(images) * CLASSES // images
    shards = []
    for number in range(-(-images // IN_SHARD)):
        here = min(IN_SHARD, images - number * IN_SHARD)
        file = f"{name}/{number:06d}.tar"
        with (root / file).open("wb") as sparse:
            sparse.truncate(here * each)
        shards.append(Shard(file=file, images=here, bytes=here * each, sha256="0" * 64))
    data = index_bytes(entries)
    (root / name / "index.npy").write_bytes(data)
    index = Index(file=f"{name}/index.npy", sha256=hashlib.sha256(data).hexdigest())
    return Half(images=images, bytes=sum(shard.bytes for shard in shards), index=index, shards=tuple(shards))


def measure(root: Path) -> dict[str, float]:
    """In a process of its own: seconds and MiB that loading, ordering an epoch and reading from it take."""
    import torch

    from trainer.config import TrainConfig
    from trainer.datasets.imagenet import load
    from trainer.distributed.ranks import Ranks
    from trainer.distributed.sampler import Order
    from trainer.distributed.session import Session
    from trainer.training import data_request

    session = Session(Ranks(), torch.device("cpu"), 60.0)
    config = TrainConfig(dataset="imagenet", data_dir=root, cache_dir=root / "cache")
    imports, began = memory_mib(), time.perf_counter()
    data = load(data_request(config, session, channels_last=True))
    loaded_s = time.perf_counter() - began
    source = data.train._source  # type: ignore[attr-defined]
    order = Order(data.train.size, seed=0, epoch=0)
    numbers = source.permutation(order)[:100_000].tolist()
    ready_s = time.perf_counter() - began
    for number in numbers:
        source.label(number)
        source.read(number)
    now = memory_mib()
    return {
        "loaded_s": loaded_s,
        "ready_s": ready_s,
        "imports": imports["Pss"],
        "all": now["Pss"],
        "private": now["Private_Dirty"],
        "private_imports": imports["Private_Dirty"],
    }


def memory_mib() -> dict[str, float]:
    """This process's, by kind: Pss counts a page that n processes share as an n-th."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1_281_167)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        say(json.dumps(measure(given.measure)))
        return
    with tempfile.TemporaryDirectory() as folder:
        lay(Path(folder), given.images)
        words = [sys.executable, "-m", "tests.bench.shard_start", "--measure", folder]
        rounds = [
            json.loads(subprocess.run(words, check=True, capture_output=True).stdout) for _ in range(given.rounds)
        ]
    best = {name: min(one[name] for one in rounds) for name in rounds[0]}
    say(f"{given.images:,} images   ({machine()})")
    say(f"  ready after {best['loaded_s']:.2f} s, with the first epoch's order {best['ready_s']:.2f} s")
    more, alone = best["all"] - best["imports"], best["private"] - best["private_imports"]
    say(f"  memory after 100,000 reads: {more:.0f} MiB more than the imports' {best['imports']:.0f}")
    say(f"  of it this process's alone: {alone:.0f} MiB")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
