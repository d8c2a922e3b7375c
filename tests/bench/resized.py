"""What training on resized copies, as trainer.prepare makes them, does to accuracy.

    python -m tests.bench.resized cifar10-jpeg --sides 18 28

cifar10-jpeg is a folder of JPEGs with train/CLASS and test/CLASS.  Nobody trains ImageNet here, so CIFAR-10 takes its
place with ImageNet's proportions: where a network sees 224 px of copies of 252 (or 392) and originals of 448, here it
sees 16 px of copies of 18 (or 28) and originals of 32.  So a copy has lost, of what is in each crop, what one of 256 px
has lost of ImageNet's, and more, for its median photograph has a shorter side of 375 px; JPEG's blocks and its halved
colours included.

The trainer's own random crops (8 to 100 % of the area), decoder, mirroring and `cnn`; the same crops, order and first
weights for each arm of a seed, so that the arms of a seed can be subtracted.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from trainer.datasets.decode import crop
from trainer.datasets.order import PHILOX_BLOCK, Order, draw, middle_crop, random_crop
from trainer.models.cnn import build
from trainer.prepare.shard import Recipe, prepared

PX = 16  # what the network sees; originals have 32
QUALITY = 92  # trainer.prepare's
BATCH, RATE = 64, 0.05
MEAN, SPREAD = 120.0, 64.0
ORIGINALS = "originals"


class Images(NamedTuple):
    """files: as they are encoded; labels: (N,)."""

    files: Sequence[bytes]
    labels: Tensor


def main() -> None:
    """Prints the accuracy of each arm, and what copies change, for the same seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=3_000, help="to train on, as many of each class")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sides", type=int, nargs="+", default=[18], help="of copies; 14 times that for ImageNet")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    began = time.perf_counter()
    train, test = read(asked.folder / "train", asked.images), read(asked.folder / "test", None)
    small = {side: (copies(train, side), copies(test, side)) for side in asked.sides}
    print(f"cnn at {PX} px, {len(train.files):,} images to train on, {len(test.files):,} to evaluate on, ", end="")
    print(f"{asked.epochs} epochs", flush=True)
    rows = list[dict[str, float]]()
    for seed in range(asked.seeds):
        row = {ORIGINALS: accuracy(learnt(train, seed, asked.epochs), test)}
        for side, (small_train, small_test) in small.items():
            model = learnt(small_train, seed, asked.epochs)
            row[f"copies of {side} px"] = accuracy(model, small_test)
            row[f"trained on {side} px, evaluated on {ORIGINALS}"] = accuracy(model, test)
        rows.append(row)
        print(f"seed {seed}: {', '.join(f'{name} {reached:.2%}' for name, reached in row.items())}", flush=True)
    report(rows)
    print(f"{time.perf_counter() - began:.0f} s")


def read(half: Path, count: int | None) -> Images:
    """`count` images in all, as many of each class; None: every one."""
    classes = sorted(path for path in half.iterdir() if path.is_dir())
    each = None if count is None else count // len(classes)
    files, labels = list[bytes](), list[int]()
    for label, folder in enumerate(classes):
        for path in sorted(folder.iterdir())[:each]:
            files.append(path.read_bytes())
            labels.append(label)
    return Images(files, torch.tensor(labels))


def copies(images: Images, side: int) -> Images:
    """With a shorter side of so many pixels, as trainer.prepare makes them."""
    recipe = Recipe(side, QUALITY)
    return Images([prepared(data, recipe)[0] for data in images.files], images.labels)


def learnt(images: Images, seed: int, epochs: int) -> torch.nn.Module:
    """A network after so many epochs."""
    torch.manual_seed(seed)
    model = build("cnn", 10, PX)
    updates = epochs * (len(images.files) // BATCH)
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=updates)
    for epoch in range(epochs):
        order = np.random.default_rng([seed, epoch]).permutation(len(images.files))
        draws = draw(Order(len(order), seed, epoch), range(len(order)))
        for first in range(0, len(order) // BATCH * BATCH, BATCH):
            chosen = order[first : first + BATCH].tolist()
            pictures = batch(images.files, chosen, [_random(draws[number]) for number in chosen])
            mirrored = torch.tensor([draws[number][0] < 0.5 for number in chosen])
            pictures = torch.where(mirrored[:, None, None, None], pictures.flip(3), pictures)
            loss = torch.nn.functional.cross_entropy(model(pictures), images.labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model


def _random(numbers: Sequence[float]) -> Callable:  # type: ignore[type-arg]
    return lambda height, width: random_crop(height, width, numbers[PHILOX_BLOCK:])


def batch(files: Sequence[bytes], numbers: Sequence[int], choices: Sequence[Callable]) -> Tensor:  # type: ignore[type-arg]
    """(N, 3, PX, PX) float32, normalised."""
    made = [crop(files[number], choose, PX) for number, choose in zip(numbers, choices, strict=True)]
    return torch.from_numpy(np.stack(made)).permute(0, 3, 1, 2).float().sub_(MEAN).div_(SPREAD)


def accuracy(model: torch.nn.Module, images: Images) -> float:
    """On the middle of each image, as the trainer evaluates."""
    model.eval()
    right = 0
    with torch.inference_mode():
        for first in range(0, len(images.files), 500):
            numbers = range(first, min(first + 500, len(images.files)))
            found = model(batch(images.files, numbers, [middle_crop] * len(numbers))).argmax(1)
            right += int((found == images.labels[first : first + len(numbers)]).sum())
    return right / len(images.files)


def report(rows: Sequence[dict[str, float]]) -> None:
    """Means over the seeds, and the mean difference with its standard error."""
    for name in rows[0]:
        mean = statistics.mean(row[name] for row in rows)
        change = [100 * (row[name] - row[ORIGINALS]) for row in rows]
        error = statistics.stdev(change) / len(change) ** 0.5 if len(change) > 1 else float("nan")
        words = "" if name == ORIGINALS else f"   {statistics.mean(change):+.2f} +- {error:.2f} points"
        print(f"{name:<42}{mean:>8.2%}{words}")


if __name__ == "__main__":
    main()
