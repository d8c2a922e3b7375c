"""Images per second of processor, from JPEG files to what a model is fed: the trainer beside the usual loaders.

    python -m tests.bench.input FOLDER

FOLDER has train/ with a folder of JPEGs for each class.  They are read as they are, and again from copies whose shorter
side is 256 pixels, which the trainer has in shards of its own: random crops resized to 224, mirrored, normalised, as
float32, in batches of 64; or as bytes, where a GPU would mirror and normalise.  The bare arms make the trainer's own
calls, in one thread and without a loader.  Every arm runs in a process of its own, or in --ranks of them at once, in
turn, ROUNDS times; medians are shown, and what the trainer's are against the others', of each round.  The seconds are
those of the process and of all its children, in one epoch after others that warm up, which all ranks begin together;
libraries that are not installed are named and left out.  Linux counts those seconds by hundredths: take enough images.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image

Results = dict[str, list[dict[str, Any]]]  # of each arm, by rounds

TICKS = os.sysconf("SC_CLK_TCK")
READY = "ready"
WARM_UP = 2  # epochs, after which the memory that is used again is there
SHORTER, QUALITY = 256, 90
SHARDS = "shards"  # the folder of them beside train/


def main() -> None:
    """Runs the arms, or as a child one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a data set with train/CLASS/*.jpg")
    parser.add_argument("--images", type=int, default=1024, help="of an epoch: the files are taken again and again")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--ranks", type=int, default=1, help="processes that each feed a model, all at once")
    parser.add_argument("--only", help="arms whose names have this regular expression")
    parser.add_argument("--arm", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.arm:
        print(json.dumps(measure(asked.arm, asked.folder, asked.workers)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        raw, small = Path(temporary, "raw"), Path(temporary, "small")
        link(asked.folder, raw, asked.images)
        shrink(raw, small)
        prepare(small)
        whole = compare("files as they are", raw, asked)
        beside(whole, whole)
        beside(compare(f"files of {SHORTER} px", small, asked), whole)


def link(source: Path, to: Path, images: int) -> None:
    """A data set of that many images: links to the files of `source`, over and over."""
    paths = sorted(path for path in source.glob("train/*/*") if path.read_bytes()[:2] == b"\xff\xd8")
    for number in range(images):
        path = paths[number % len(paths)]
        for half in ("train", "val"):
            place = to / half / path.parent.name / f"{number}.jpg"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(path.resolve())


def shrink(source: Path, to: Path) -> None:
    """Copies whose shorter side has SHORTER pixels; a file that is there more than once is made once."""
    made: dict[Path, Path] = {}
    for path in sorted(source.glob("*/*/*")):
        place = to / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        original = path.resolve()
        if original in made:
            place.symlink_to(made[original])
            continue
        with Image.open(original) as image:
            scale = SHORTER / min(image.size)
            sides = (round(image.width * scale), round(image.height * scale))
            small = image.convert("RGB").resize(sides, Image.Resampling.LANCZOS)
        small.save(place, "JPEG", quality=QUALITY, optimize=True)
        made[original] = place


def prepare(root: Path) -> None:
    """The same files in the trainer's shards, byte by byte, beside them."""
    into = [str(root), str(root / SHARDS), "--no-resize"]
    subprocess.run([sys.executable, "-m", "trainer.prepare", *into], check=True, stdout=subprocess.DEVNULL)


def compare(title: str, root: Path, asked: argparse.Namespace) -> Results:
    """Prints the table of one data set, and returns it."""
    from tests.bench.input_arms import ARMS

    found: Results = {}
    for _ in range(asked.rounds):
        for arm in ARMS:
            if asked.only and not re.search(asked.only, arm):
                continue
            own = ["-m", "tests.bench.input", str(root), "--arm", arm, "--workers", str(asked.workers)]
            found.setdefault(arm, []).append(at_once([sys.executable, *own], asked.ranks))
    ranks = f"{asked.ranks} ranks of " if asked.ranks > 1 else ""
    print(f"\n{title}: {asked.images} images, {ranks}{asked.workers} workers, {asked.rounds} rounds")
    print(f"{'arm':<28}{'images / CPU-s':>16}{'spread':>14}{'images / s':>12}")
    for arm, results in found.items():
        rates = [result["per_cpu_s"] for result in results if "per_cpu_s" in result]
        if not rates:
            print(f"{arm:<28}left out: {results[0]['missing'][:80]}")
            continue
        wall = statistics.median(result["per_s"] for result in results if "per_s" in result)
        spread = f"{min(rates):.0f} - {max(rates):.0f}"
        print(f"{arm:<28}{statistics.median(rates):>16.0f}{spread:>14}{wall:>12.0f}", flush=True)
    return found


def beside(found: Results, whole: Results) -> None:
    """Prints how many times as fast as others the trainer is: the median of what each round had.  whole: raw files'."""
    from tests.bench.input_arms import BARE, OTHERS

    for ours, bare in BARE.items():
        times = {
            **{f"{other}, whole files": _times(found, ours, whole, other) for other in OTHERS[:1]},
            **{other: _times(found, ours, found, other) for other in OTHERS[1:]},
            bare: _times(found, ours, found, bare),
        }
        said = ", ".join(f"{much:.2f} of {other}" for other, much in times.items() if much)
        if said:
            print(f"  {ours}: {said}", flush=True)


def _times(found: Results, ours: str, others: Results, other: str) -> float | None:
    pairs = zip(found.get(ours, []), others.get(other, []), strict=False)
    ratios = [a["per_cpu_s"] / b["per_cpu_s"] for a, b in pairs if "per_cpu_s" in a and "per_cpu_s" in b]
    return statistics.median(ratios) if ratios else None


def at_once(command: list[str], ranks: int) -> dict[str, Any]:
    """What so many processes found together, or the last words of one that failed."""
    pipe = subprocess.PIPE
    waits, starts = os.pipe()
    processes = [subprocess.Popen(command, stdin=waits, stdout=pipe, stderr=pipe, text=True) for _ in range(ranks)]
    for process in processes:
        assert process.stdout
        process.stdout.readline()  # READY, or nothing where it failed
    os.close(starts)  # ends all of them's input
    os.close(waits)
    said = [process.communicate() for process in processes]
    for process, (_, errors) in zip(processes, said, strict=True):
        if process.returncode:
            return {"missing": (errors.strip().splitlines() or ["no answer"])[-1]}
    rates = [json.loads(out.strip().splitlines()[-1]) for out, _ in said]
    if not all(rate["per_cpu_s"] for rate in rates):
        return {"missing": "no whole batch for each worker; raise --images"}
    # As many images each, so their processor seconds add up.
    per_cpu_s = ranks / sum(1 / rate["per_cpu_s"] for rate in rates)
    return {"per_cpu_s": per_cpu_s, "per_s": sum(rate["per_s"] for rate in rates)}


def measure(arm: str, root: Path, workers: int) -> dict[str, float]:
    """Images per second of processor and of the clock, in one epoch after others."""
    import torch

    from tests.bench.input_arms import ARMS, BATCH

    torch.set_num_threads(1)
    epoch = ARMS[arm](root, workers)
    for _ in range(WARM_UP):
        for _ in epoch():
            pass
    print(READY, flush=True)
    sys.stdin.read()  # which ends once the other ranks are ready, too
    cpu, began = processor_seconds(), time.perf_counter()
    images = sum(BATCH for _ in epoch())
    wall, cpu = time.perf_counter() - began, processor_seconds() - cpu
    return {"per_cpu_s": images / cpu, "per_s": images / wall}


def processor_seconds() -> float:
    """Of this process and all that descend from it, dead or alive."""
    parents, used = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # has just ended
            continue
        parents[int(stat.parent.name)] = int(fields[1])
        used[int(stat.parent.name)] = sum(map(int, fields[11:15])) / TICKS
    return sum(seconds for pid, seconds in used.items() if _descends(pid, parents))


def _descends(pid: int, parents: dict[int, int]) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = parents.get(pid, 0)
    return False


if __name__ == "__main__":
    main()
