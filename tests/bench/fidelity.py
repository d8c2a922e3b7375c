"""What scaled decoding and resized copies change: in the pixels, and in what a small network learns.

    python -m tests.bench.fidelity FOLDER [--cifar FOLDER]

Pixels: PSNR of random crops at 224 px against the whole image decoded at full size, cropped and resized by Pillow with
antialiasing, for the trainer's decoder on the same file and on copies with a shorter side of 256 and 400 px.
Accuracy: a small network on images of 32 px, made in both ways, the same crops and seeds: --cifar is a folder of JPEGs
with train/CLASS and test/CLASS, of which every image is enlarged eightfold first, so that there is something to shrink.
"""

import argparse
import io
import statistics
from pathlib import Path

import numpy as np
import simplejpeg
import torch
from numpy.typing import NDArray
from PIL import Image

from trainer.datasets.decode import Pixels, crop
from trainer.datasets.order import PHILOX_BLOCK, Crop, Order, draw, random_crop
from trainer.models.cnn import build

SIDE, SMALL = 224, 32
EPOCHS, BATCH = 8, 64


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cifar", type=Path)
    parser.add_argument("--images", type=int, default=1500, help="of CIFAR-10 to train on; half as many to evaluate on")
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    files = [path.read_bytes() for path in sorted(asked.folder.glob("train/*/*"))]
    pixels([data for data in files if data[:2] == b"\xff\xd8"])
    if asked.cifar:
        accuracy(asked.cifar, asked.images, asked.seeds)


def by_pillow(data: bytes, part: Crop, size: int) -> Pixels:
    """The slow reference: everything is decoded, and nothing but the resize loses detail."""
    with Image.open(io.BytesIO(data)) as image:
        box = (part.left, part.top, part.left + part.width, part.top + part.height)
        return np.asarray(image.convert("RGB").crop(box).resize((size, size), Image.Resampling.BILINEAR))


def ours(data: bytes, part: Crop, size: int) -> Pixels:
    """The trainer's decoder."""
    return crop(data, lambda height, width: part, size)


def shrunk(data: bytes, side: int) -> tuple[bytes, float]:
    """A copy whose shorter side has at most so many pixels, as trainer.prepare makes it, and its scale."""
    with Image.open(io.BytesIO(data)) as image:
        scale = min(1.0, side / min(image.size))
        if scale == 1.0:
            return data, 1.0
        small = image.convert("RGB").resize(
            (round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS
        )
    file = io.BytesIO()
    small.save(file, "JPEG", quality=92)
    return file.getvalue(), scale


def psnr(one: Pixels, other: Pixels) -> float:
    """In dB; 100 for equal images."""
    error = float(((one.astype(float) - other) ** 2).mean())
    return 100.0 if error == 0 else float(10 * np.log10(255**2 / error))


def pixels(files: list[bytes]) -> None:
    """Prints PSNRs."""
    found: dict[str, list[float]] = {"same file, at full size": [], "same file, decoded to 1/2 or less": []}
    found |= {f"copy of {side} px": [] for side in (256, 400)}
    for data, numbers in zip(files, draw(Order(len(files), 0, 0), range(len(files))), strict=True):
        height, width, _, _ = simplejpeg.decode_jpeg_header(data)
        part = random_crop(height, width, numbers[PHILOX_BLOCK:])
        expected = by_pillow(data, part, SIDE)
        scaled = min(part.height, part.width) >= 2 * SIDE
        kind = "same file, decoded to 1/2 or less" if scaled else "same file, at full size"
        found[kind].append(psnr(ours(data, part, SIDE), expected))
        for side in (256, 400):
            copy, scale = shrunk(data, side)
            if scale < 1:
                edges = (part.top, part.left, part.top + part.height, part.left + part.width)
                top, left, bottom, right = (round(edge * scale) for edge in edges)
                small = Crop(top, left, bottom - top, right - left)
                found[f"copy of {side} px"].append(psnr(ours(copy, small, SIDE), expected))
    print(f"PSNR of {SIDE} px crops against full decoding and Pillow's antialiased resize")
    print(f"{'':<36}{'images':>8}{'median':>9}{'least':>8}")
    for name, values in found.items():
        if values:
            print(f"{name:<36}{len(values):>8}{statistics.median(values):>9.1f}{min(values):>8.1f}")


def accuracy(root: Path, images: int, seeds: int) -> None:
    """Prints the accuracy that the same network reaches on images made in each way."""
    names = sorted(path.name for path in (root / "train").iterdir())
    train, test = (load(root / half, names, count) for half, count in (("train", images), ("test", images // 2)))
    print(f"\ntest accuracy of cnn at {SMALL} px, {images} images of CIFAR-10, {EPOCHS} epochs, {seeds} seeds")
    for name, make in (("full decoding, Pillow", by_pillow), ("scaled decoding, torch", ours)):
        made = [as_tensors(half, make) for half in (train, test)]
        reached = [learn(made[0], made[1], len(names), seed) for seed in range(seeds)]
        spread = statistics.stdev(reached)
        print(
            f"{name:<26}{statistics.mean(reached):>8.1%} +- {spread:.1%}   {' '.join(f'{r:.3f}' for r in reached)}",
            flush=True,
        )


def load(half: Path, names: list[str], count: int) -> list[tuple[bytes, int]]:
    """So many images and their labels, enlarged to 256 px."""
    found = []
    for label, name in enumerate(names):
        for path in sorted((half / name).iterdir())[: count // len(names)]:
            with Image.open(path) as image:
                large = image.convert("RGB").resize((256, 256), Image.Resampling.BICUBIC)
            file = io.BytesIO()
            large.save(file, "JPEG", quality=92)
            found.append((file.getvalue(), label))
    return found


def as_tensors(images: list[tuple[bytes, int]], make) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[no-untyped-def]
    """(N, 3, SMALL, SMALL) float32 and labels, of the same random crops for each way of making them."""
    draws = draw(Order(len(images), 1, 0), range(len(images)))
    pixels: list[NDArray[np.uint8]] = []
    for (data, _), numbers in zip(images, draws, strict=True):
        side = 160 + int(numbers[0] * 97)  # crops of 160 to 256 px, which are decoded to 1/4 or 1/2
        part = Crop(int(numbers[4] * (257 - side)), int(numbers[5] * (257 - side)), side, side)
        pixels.append(make(data, part, SMALL))
    stacked = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).float().sub_(120).div_(64)
    return stacked, torch.tensor([label for _, label in images])


def learn(
    train: tuple[torch.Tensor, torch.Tensor], test: tuple[torch.Tensor, torch.Tensor], classes: int, seed: int
) -> float:
    """The test accuracy after EPOCHS."""
    torch.manual_seed(seed)
    model = build("cnn", classes, SMALL)
    steps = EPOCHS * (len(train[0]) // BATCH)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=steps + 1)
    for _ in range(EPOCHS):
        order = torch.randperm(len(train[0]))
        for start in range(0, len(order) // BATCH * BATCH, BATCH):
            chosen = order[start : start + BATCH]
            loss = torch.nn.functional.cross_entropy(model(train[0][chosen]), train[1][chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    with torch.inference_mode():
        return float((model(test[0]).argmax(1) == test[1]).float().mean())


if __name__ == "__main__":
    main()
