"""How long python -m trainer.prepare takes, and how much memory: while it lists, prepares and verifies many images.

python -m tests.bench.preparing [--images 100000] [--like FOLDER] [--workers 2]

Without --like the images are made here, small ones.  With it they are links to those of a folder, so that each costs
what a real one costs.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import simplejpeg

from tests.bench.report import machine, say

CLASSES = 100
IMAGENET = 1_331_167
LOOK_EVERY_S = 0.2


def lay(root: Path, images: int, like: Path | None) -> None:
    """A folder of so many images, a twentieth of them to evaluate on."""
    contents = synthetic() if like is None else None
    originals = sorted(like.rglob("*.[jJ]*")) if like else []
    for name, share in (("train", images - images // 20), ("val", images // 20)):
        for number in range(share):
            folder = root / name / f"class-{number % CLASSES:03d}"
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{number:07d}.jpg"
            if contents is None:
                path.hardlink_to(originals[number % len(originals)])
            else:
                path.write_bytes(contents[number % len(contents)])


def synthetic() -> list[bytes]:
    """A thousand small JPEGs."""
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (1000, 8, 10, 3), dtype=np.uint8)
    return [simplejpeg.encode_jpeg(np.ascontiguousarray(one.repeat(8, 0).repeat(8, 1))) for one in small]


def processes(pid: int) -> Iterator[int]:
    """A process and what it has started."""
    yield pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield int(child)


def rss_mib(pid: int) -> float:
    """Memory of a process, without the pages of files that it shares with all."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) / 1024


def watched(words: list[str]) -> tuple[float, float, list[tuple[float, float, float]]]:
    """Wall and processor seconds, and a row (second, MiB of the first process, of the largest worker) now and then."""
    began, before, rows = time.perf_counter(), os.times(), []
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        try:
            sizes = [rss_mib(pid) for pid in processes(process.pid)]
            rows.append((time.perf_counter() - began, sizes[0], max(sizes[1:], default=0.0)))
        except (OSError, KeyError):
            pass  # it has just ended
        time.sleep(LOOK_EVERY_S)
    after = os.times()
    spent = after.children_user - before.children_user + after.children_system - before.children_system
    assert process.returncode == 0
    return time.perf_counter() - began, spent, rows


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--like", type=Path)
    parser.add_argument("--resize", default="256")
    parser.add_argument("--workers", default="2")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.like.parent if given.like else None) as folder:
        lay(Path(folder, "source"), given.images, given.like)
        words = [sys.executable, "-m", "trainer.prepare", f"{folder}/source", f"{folder}/shards"]
        wall, spent, rows = watched([*words, "--resize", given.resize, "--workers", given.workers])
    quarters = [rows[len(rows) * quarter // 4 : len(rows) * (quarter + 1) // 4] for quarter in range(4)]
    say(f"{given.images:,} images, {given.workers} workers, --resize {given.resize}   ({machine()})")
    say(f"  {wall:.0f} s, {spent:.0f} s of processor: {given.images / spent:,.0f} images per CPU-second")
    say(f"  ImageNet: {IMAGENET / given.images * spent / 60:,.0f} CPU-minutes, on 8 cores about an eighth of that")
    for name, column in (("first process", 1), ("largest worker", 2)):
        most = ", ".join(f"{max(row[column] for row in quarter):.0f}" for quarter in quarters)
        say(f"  MiB of the {name}, most in each quarter of the time: {most}")


if __name__ == "__main__":
    main()
