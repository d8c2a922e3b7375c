"""Tiny data sets on disk, and a Request that can be varied."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
import torch

from tests.trainer.prepare.conftest import photos as photos  # fixtures that are shared
from tests.trainer.prepare.conftest import prepared as prepared
from trainer.datasets.base import Request

Ask = Callable[..., Request]
MakeTree = Callable[..., Path]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """ask(data_dir, image_size=8, ...) -> Request on the CPU, with a cache of its own."""

    def make(data_dir: Path = tmp_path, **changes: Any) -> Request:
        usual: dict[str, Any] = {
            "data_dir": data_dir,
            "cache_dir": tmp_path / "cache",
            "device": torch.device("cpu"),
            "image_size": None,
            "augment": True,
            "channels_last": False,
            "workers": 2,
            "max_bad_images": 0,
            "download": False,
            "seed": 0,
            "synthetic_images": 100,
            "synthetic_classes": 10,
        }
        return Request(**usual | changes)

    return make


@pytest.fixture
def make_tree(tmp_path: Path) -> MakeTree:
    """make_tree(side=16, train=6, val=3) -> folder with JPEGs of noise for the classes cat and dog, each so many."""

    def make(side: int = 16, train: int = 6, val: int = 3) -> Path:
        rng = np.random.default_rng(0)
        for half, count in (("train", train), ("val", val)):
            for name in ("cat", "dog"):
                folder = tmp_path / "tree" / half / name
                folder.mkdir(parents=True)
                for number in range(count):
                    pixels = rng.integers(0, 256, (side, side, 3), dtype=np.uint8)
                    (folder / f"{number}.jpg").write_bytes(simplejpeg.encode_jpeg(pixels))
        return tmp_path / "tree"

    return make
