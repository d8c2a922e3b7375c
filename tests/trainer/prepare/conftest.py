"""Small photos in folders, and a preparation of them in this process."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from trainer.datasets.manifest import Manifest
from trainer.prepare.pipeline import Options, Screen, prepare
from trainer.prepare.shard import Recipe

Photos = Callable[..., Path]
Prepare = Callable[..., Manifest]


def photo(number: int, width: int = 60, height: int = 40, kind: str = "JPEG") -> bytes:
    """An image that no other number has: soft colours, as in a photo."""
    rng = np.random.default_rng(number)
    rough = Image.fromarray(rng.integers(0, 256, (4, 5, 3), dtype=np.uint8))
    file = io.BytesIO()
    rough.resize((width, height), Image.Resampling.BICUBIC).save(file, kind, quality=95)
    return file.getvalue()


def make_photos(root: Path, train: int = 6, val: int = 3, width: int = 60, height: int = 40) -> Path:
    """`root`, with so many photos for each of cat and dog."""
    for half, count in (("train", train), ("val", val)):
        for label, name in enumerate(("cat", "dog")):
            folder = root / half / name
            folder.mkdir(parents=True)
            for number in range(count):
                seed = 10_000 * label + 1_000_000 * (half == "val") + number
                (folder / f"{number:04d}.jpg").write_bytes(photo(seed, width, height))
    return root


def prepare_here(source: Path, target: Path, **changes: Any) -> Manifest:
    """Prepares in this process, in shards of about 6 kB."""
    recipe = Recipe(changes.pop("resize", None), changes.pop("quality", 92))
    usual: dict[str, Any] = {"name": None, "shard_bytes": 6_000, "max_bad_images": 0, "workers": 1}
    return prepare(Options(source, target, recipe=recipe, **(usual | changes)), Screen(lambda line: None, False))


@pytest.fixture
def photos(tmp_path: Path) -> Photos:
    """photos(train=6, val=3, width=60, height=40) -> folder with so many photos for each of cat and dog."""
    return lambda **sizes: make_photos(tmp_path / "photos", **sizes)


@pytest.fixture
def prepared(tmp_path: Path) -> Prepare:
    """prepared(source, target="prepared", resize=None, workers=1, ...) -> manifest."""
    return lambda source, target="prepared", **changes: prepare_here(source, tmp_path / target, **changes)


def content(folder: Path) -> dict[str, bytes]:
    """Every file below `folder`."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
