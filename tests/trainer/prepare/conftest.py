"""Small photos in folders, and a preparation of them in this process."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from trainer.datasets.manifest import Manifest
from trainer.prepare.picture import Recipe
from trainer.prepare.whole import Options, Screen, prepare

Photos = Callable[..., Path]
Prepare = Callable[..., Manifest]


def photo(number: int, width: int = 60, height: int = 40, kind: str = "JPEG") -> bytes:
    """An image that no other number has: soft colours, as in a photo."""
    rng = np.random.default_rng(number)
    rough = Image.fromarray(rng.integers(0, 256, (4, 5, 3), dtype=np.uint8))
    file = io.BytesIO()
    rough.resize((width, height), Image.Resampling.BICUBIC).save(file, kind, quality=95)
    return file.getvalue()


@pytest.fixture
def photos(tmp_path: Path) -> Photos:
    """photos(train=6, val=3, width=60, height=40) -> folder with so many photos for each of cat and dog."""

    def make(train: int = 6, val: int = 3, width: int = 60, height: int = 40) -> Path:
        for half, count in (("train", train), ("val", val)):
            for label, name in enumerate(("cat", "dog")):
                folder = tmp_path / "photos" / half / name
                folder.mkdir(parents=True)
                for number in range(count):
                    seed = 10_000 * label + 1_000_000 * (half == "val") + number
                    (folder / f"{number:04d}.jpg").write_bytes(photo(seed, width, height))
        return tmp_path / "photos"

    return make


@pytest.fixture
def prepared(tmp_path: Path) -> Prepare:
    """prepared(source, target="prepared", resize=None, workers=1, ...) -> manifest, in shards of about 6 kB."""

    def make(source: Path, target: str = "prepared", **changes: Any) -> Manifest:
        recipe = Recipe(changes.pop("resize", None), changes.pop("quality", 92))
        usual: dict[str, Any] = {"name": None, "shard_bytes": 6_000, "max_bad_images": 0, "workers": 1}
        options = Options(source, tmp_path / target, recipe=recipe, **(usual | changes))
        return prepare(options, Screen(lambda line: None, False))

    return make


def content(folder: Path) -> dict[str, bytes]:
    """Every file below `folder`."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
