import io
import threading

import numpy as np
import pytest
import simplejpeg
import torch
from PIL import Image

from trainer.datasets.base import IMAGENET
from trainer.datasets.decode import Normaliser, resize
from trainer.datasets.encoded import Pixels
from trainer.datasets.order import Crop, View
from trainer.datasets.rows import ByteRows, FloatRows, Memory

SIDE, CPU = 16, torch.device("cpu")
NOISE = np.random.default_rng(0).integers(0, 256, (48, 40, 3), dtype=np.uint8)
PNG = io.BytesIO()
Image.fromarray(NOISE).save(PNG, "PNG")
JPEG = simplejpeg.encode_jpeg(NOISE)


def resized(pixels: Pixels, size: int) -> Pixels:
    small = np.empty((size, size, 3), np.uint8)
    resize(pixels, small)
    return small


def views() -> list[tuple[bytes, View]]:
    part = Crop(3, 5, 32, 20)
    return [(data, View(lambda height, width: part, flip)) for data in (JPEG, PNG.getvalue()) for flip in (False, True)]


@pytest.mark.parametrize("channels_last", [True, False])
def test_a_batch_is_the_same_bit_by_bit_wherever_it_is_normalised(channels_last: bool) -> None:
    normalise = Normaliser(IMAGENET, SIDE, CPU, channels_last)
    floats = FloatRows(5, SIDE, normalise, Memory(), channels_last)
    as_bytes = ByteRows(5, SIDE, normalise, CPU)

    for rows in (floats, as_bytes):
        for row, (data, view) in enumerate(views()):
            rows.put(row, data, view)
        rows.copy(4, 1)

    assert torch.equal(floats.images(), as_bytes.images())
    assert floats.images().stride() == as_bytes.images().stride()
    assert torch.equal(floats.images()[1], floats.images()[0].flip(2))


def test_an_image_shows_nothing_of_the_larger_one_before_it() -> None:
    """Both are decoded and resized in the same memory."""
    large = simplejpeg.encode_jpeg(np.random.default_rng(4).integers(0, 256, (90, 110, 3), dtype=np.uint8))
    after, alone = (ByteRows(2, SIDE, Normaliser(IMAGENET, SIDE, CPU, True), CPU) for _ in range(2))
    whole = View(lambda height, width: Crop(0, 0, height, width), False)

    after.put(0, large, whole)
    after.put(1, JPEG, whole)
    thread = threading.Thread(target=alone.put, args=(1, JPEG, whole))
    thread.start()
    thread.join()

    assert torch.equal(after.pixels[1], alone.pixels[1])
    assert not torch.equal(after.pixels[0], after.pixels[1])


@pytest.mark.parametrize(("height", "width"), [(100, 130), (32, 40)])
def test_resizing_gives_pillows_pixels_to_within_one_level(height: int, width: int) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (height, width, 3), dtype=np.uint8)
    pixels.flags.writeable = False

    ours = resized(pixels, 48)

    theirs = np.asarray(Image.fromarray(pixels).resize((48, 48), Image.Resampling.BILINEAR))
    assert np.abs(ours.astype(int) - theirs).max() <= 1
    assert ours.flags.c_contiguous  # what follows is several times slower otherwise


@pytest.mark.parametrize("size", [48, 224])
def test_what_is_mirrored_is_the_same_flipped_left_to_right_to_the_last_bit(size: int) -> None:
    rng = np.random.default_rng(2)
    for height, width in [(size, size), *rng.integers(20, 400, (60, 2)).tolist()]:
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        pixels.flags.writeable = False
        mirrored = np.empty((size, size, 3), np.uint8)

        resize(pixels, mirrored, is_mirrored=True)

        assert np.array_equal(mirrored, resized(pixels, size)[:, ::-1]), (height, width)
