"""Where the trainer's milliseconds go, from 256 px shards to a batch: processor time an image, stage upon stage.

    python -m tests.bench.stages FOLDER

FOLDER has train/ with a folder of JPEGs for each class, of which shards are made as input.py makes them.  Each stage
does all that those above it do, and a little more, in one thread, on the same images and crops; stages take turns,
ROUNDS times.  "More" is the median of what a stage took beyond the one above it in the same round.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg
import torch

from tests.bench.input import SHARDS, link, prepare, shrink
from tests.bench.input_arms import SIDE, split
from trainer.datasets.decode import resize
from trainer.datasets.order import Crops, Order
from trainer.datasets.rows import ByteRows, FloatRows, Memory
from trainer.datasets.source import read

BATCH, BATCHES = 64, 4  # rows of so many batches are filled in turn, as the trainer does
Stage = Callable[[int, int], Any]  # of an image and a row


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        raw, small = Path(temporary, "raw"), Path(temporary, "small")
        link(asked.folder, raw, asked.images)
        shrink(raw, small)
        prepare(small)
        assert (small / SHARDS).is_dir()
        took = take_turns(stages(split(small, workers=1)), asked.images, asked.rounds)
    print(f"{asked.images} images of 256 px from shards, {asked.rounds} rounds; ms of processor an image")
    print(f"{'stage':<42}{'in all':>8}{'least':>8}{'more':>8}")
    before = [0.0] * asked.rounds
    for name, seconds in took.items():
        more = statistics.median(now - then for now, then in zip(seconds, before, strict=True))
        print(f"{name:<42}{1e3 * statistics.median(seconds):>8.3f}{1e3 * min(seconds):>8.3f}{1e3 * more:>+8.3f}")
        before = seconds


def stages(train: Any) -> dict[str, Stage]:
    """What the trainer does with an image, as far as each of them goes."""
    source, cpu = train._source, torch.device("cpu")
    views = Crops(Order(source.size, 0, 1), range(source.size)).views()
    decoded, made = np.empty(2**24, np.uint8), np.empty((SIDE, SIDE, 3), np.uint8)
    as_bytes = [ByteRows(BATCH, SIDE, train._normalise, cpu) for _ in range(BATCHES)]
    floats = [FloatRows(BATCH, SIDE, train._normalise, Memory(), channels_last=True) for _ in range(BATCHES)]

    def bytes_of(number: int, row: int) -> bytes:
        return read(source, number)

    def choose(number: int, row: int) -> tuple[bytes, Any]:
        data = read(source, number)
        return data, views[number].choose(*simplejpeg.decode_jpeg_header(data)[:2])

    def decode(number: int, row: int) -> Any:
        data, (top, left, height, width) = choose(number, row)
        return simplejpeg.decode_jpeg(data, buffer=decoded)[top : top + height, left : left + width]

    return {
        "reading the shard": bytes_of,
        "JPEG's header, the crop": choose,
        "decoding": decode,
        "torch's resize": lambda number, row: resize(decode(number, row), made),
        "into a batch of bytes, all of our calls": lambda number, row: _row(as_bytes, row).put(
            row % BATCH, read(source, number), views[number]
        ),
        "mirrored, normalised: a batch of floats": lambda number, row: _row(floats, row).put(
            row % BATCH, read(source, number), views[number]
        ),
    }


def _row(batches: list[Any], row: int) -> Any:
    return batches[row // BATCH % BATCHES]


def take_turns(stages: dict[str, Stage], images: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of processor an image, of each stage in each round."""
    took: dict[str, list[float]] = {name: [] for name in stages}
    for number in range(rounds + 1):
        for name, stage in stages.items():
            began = time.process_time()
            for image in range(images):
                stage(image, number * images + image)
            if number:  # the first of them warms up
                took[name].append((time.process_time() - began) / images)
    return took


if __name__ == "__main__":
    main()
