"""Seconds and memory until a prepared data set of ImageNet's size is ready, from a disk: the index is made up.

    python -m tests.bench.shard_start [--images 1281167] [--rounds 3] [--ranks 2]

All ranks, each a process, are looked at once all have come to the same place, so that what they share counts as shared:
the pages of libraries and of the index, which lie in memory once.  What is a process's own is what one more costs.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from tests.bench.report import machine, say
from trainer.datasets.manifest import ENTRY, Half, Index, Manifest, Shard, Splits
from trainer.datasets.source import read
from trainer.prepare.shard import _index_bytes

IN_SHARD, LENGTH = 2_000, 30_000  # images of a shard, bytes of an image
VAL = 50_000
CLASSES = 1000
READS = 100_000
STAGES = ("import torch", "the trainer's imports", f"the index, {READS:,} reads")


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
    data = _index_bytes(entries)
    (root / name / "index.npy").write_bytes(data)
    index = Index(file=f"{name}/index.npy", sha256=hashlib.sha256(data).hexdigest())
    return Half(images=images, bytes=sum(shard.bytes for shard in shards), index=index, shards=tuple(shards))


def rank(root: Path, asked: TextIO) -> None:
    """A process of its own: loads, orders an epoch and reads from it; says when it is at one of STAGES, and waits."""
    import torch

    _wait_there(asked)
    from trainer.config import TrainConfig
    from trainer.datasets.imagefolder import load
    from trainer.datasets.order import Order
    from trainer.distributed.ranks import Ranks
    from trainer.distributed.session import Session
    from trainer.training import data_request

    session = Session(Ranks(), torch.device("cpu"), 60.0)
    config = TrainConfig(dataset="imagenet", data_dir=root, cache_dir=root / "cache")
    _wait_there(asked)
    began = time.perf_counter()
    data = load(data_request(config, session, channels_last=True))
    loaded_s = time.perf_counter() - began
    source = data.train._source  # type: ignore[attr-defined]
    order = Order(data.train.size, seed=0, epoch=0)
    numbers = source.permutation(order)[:READS].tolist()
    ready_s = time.perf_counter() - began
    for number in numbers:
        source.label(number)
        read(source, number)
    _wait_there(asked, loaded_s=loaded_s, ready_s=ready_s)


def _wait_there(asked: TextIO, **found: float) -> None:
    say(json.dumps(found))
    asked.readline()


@dataclass(frozen=True)
class Started:
    """A rank: what it sends, and the place at which it resumes."""

    pid: int
    said: TextIO
    go: TextIO


@contextmanager
def started(root: Path, ranks: int) -> Iterator[list[Started]]:
    """The ranks, each of which imports torch for itself."""
    files = [_fifos(root, number) for number in range(ranks)]
    processes = []
    for said, go in files:
        words = [sys.executable, "-m", "tests.bench.shard_start", "--rank", str(root), "--go", str(go)]
        processes.append(subprocess.Popen(words, stdout=os.open(said, os.O_RDWR)))
    yield [_opened(process.pid, *pair) for process, pair in zip(processes, files, strict=True)]
    for process in processes:
        process.wait()


def _fifos(root: Path, number: int) -> tuple[Path, Path]:
    said, go = Path(tempfile.mkdtemp(dir=root)) / "said", root / f"go{number}"
    for path in (said, go):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    os.open(said, os.O_RDWR)  # so that nobody waits for the other end, nor sees it end
    return said, go


def _opened(pid: int, said: Path, go: Path) -> Started:
    return Started(pid, said.open(), go.open("w"))


def measure(root: Path, ranks: int) -> dict[str, float]:
    """Seconds, and the MiB at each of STAGES, of the rank that has most."""
    found: dict[str, float] = {}
    with started(root, ranks) as processes:
        for stage in STAGES:
            for one in processes:
                _keep_most(found, json.loads(one.said.readline()))
            for one in processes:
                _keep_most(found, {f"{kind}, {stage}": mib for kind, mib in memory_mib(one.pid).items()})
            for one in processes:
                one.go.write("go on\n")
                one.go.flush()
    return found


def _keep_most(found: dict[str, float], more: dict[str, float]) -> None:
    for name, number in more.items():
        found[name] = max(number, found.get(name, number))


def memory_mib(pid: int) -> dict[str, float]:
    """A process's resident memory, and what of it no other process has."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    mib = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
    return {"resident": mib["Rss"], "own": mib["Private_Clean"] + mib["Private_Dirty"]}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1_281_167)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--go", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        with given.go.open() as asked:
            rank(given.rank, asked)
        return
    say(f"{given.images:,} images, {given.ranks} ranks   ({machine()})")
    with tempfile.TemporaryDirectory() as folder:
        lay(Path(folder), given.images)
        rounds = [measure(Path(folder), given.ranks) for _ in range(given.rounds)]
        _show({name: min(one[name] for one in rounds) for name in rounds[0]})


def _show(best: dict[str, float]) -> None:
    say(f"ready after {best['loaded_s']:.2f} s, with the first epoch's order {best['ready_s']:.2f} s")
    say(f"  {'MiB of a rank, after':<32}{'resident':>10}{'its own':>10}")
    for stage in STAGES:
        say(f"  {stage:<32}{best[f'resident, {stage}']:>10.0f}{best[f'own, {stage}']:>10.0f}")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
