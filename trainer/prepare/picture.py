"""What becomes of one image: its own bytes, or a smaller JPEG."""

from dataclasses import dataclass

import numpy as np
import simplejpeg
from PIL import Image

from trainer.datasets.encoded import FORMATS, Pixels, format_of, whole

EXTENSIONS = {kind: kind.lower() for kind in FORMATS} | {"JPEG": "jpg", "JPEG2000": "jp2"}


@dataclass(frozen=True)
class Recipe:
    """resize: most pixels of the shorter side, None: all stay as they are; quality: of JPEGs that are made anew."""

    resize: int | None
    quality: int


def prepared(data: bytes, recipe: Recipe) -> tuple[bytes, str]:
    """The bytes for the shard, and their extension.  Raises UnreadableError.

    Every image is decoded, so that a damaged one is found now; one that is small enough keeps its bytes.
    """
    pixels = whole(data)
    height, width = pixels.shape[:2]
    if recipe.resize is None or min(height, width) <= recipe.resize:
        return data, EXTENSIONS[format_of(data)]
    small = smaller(pixels, recipe.resize)
    # 4:2:0, as cameras write them: a fifth smaller than 4:4:4 and quicker to decode.
    return simplejpeg.encode_jpeg(small, quality=recipe.quality, colorsubsampling="420"), EXTENSIONS["JPEG"]


def smaller(pixels: Pixels, side: int) -> Pixels:
    """`pixels` with `side` for the shorter side, rounded and filtered as torchvision's Resize does it."""
    height, width = pixels.shape[:2]
    size = (side, int(side * height / width)) if width < height else (int(side * width / height), side)
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BILINEAR))
