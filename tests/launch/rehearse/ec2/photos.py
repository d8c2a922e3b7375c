"""A folder of the user's own images, for what publishes it; apart from the tests, which import torch and moto."""

from pathlib import Path
from random import Random

from PIL import Image


def write_images(folder: Path) -> Path:
    """Two classes, of ten images to train and four to evaluate: noise, so that it takes several blocks."""
    noise = Random(0)
    for split, count in (("train", 10), ("val", 4)):
        for name in ("cat", "dog"):
            (folder / split / name).mkdir(parents=True)
            for number in range(count):
                image = Image.frombytes("RGB", (250, 240), noise.randbytes(3 * 250 * 240))
                image.save(folder / split / name / f"{number}.jpg")
    return folder
