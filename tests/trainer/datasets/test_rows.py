import gc
import io
import threading
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
import torch
from PIL import Image

from trainer.datasets.base import IMAGENET, Normaliser
from trainer.datasets.crops import Crop, View
from trainer.datasets.decode import MOST_KEPT, Scratch, resize
from trainer.datasets.encoded import Pixels
from trainer.datasets.rows import ByteRows, FloatRows, Memory

TASKS = Path("/proc/self/task")
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


def test_a_row_without_any_image_is_black() -> None:
    normalise = Normaliser(IMAGENET, SIDE, CPU, channels_last=True)
    rows = FloatRows(1, SIDE, normalise, Memory(), channels_last=True)

    rows.copy(0, None)

    assert torch.equal(rows.images(), normalise(torch.zeros(1, SIDE, SIDE, 3, dtype=torch.uint8)))


def test_memory_is_lent_again_only_when_no_tensor_is_left_in_it() -> None:
    memory = Memory()
    first = memory.lend((2, 3))
    held = torch.from_numpy(first)[1].view(3)
    place = first.ctypes.data
    del first
    gc.collect()

    second = memory.lend((2, 3))
    assert second.ctypes.data != place
    del held
    gc.collect()
    assert memory.lend((2, 3)).ctypes.data == place
    assert memory.lend((3, 3)).shape == (3, 3)


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


def test_a_thread_has_its_memory_again_and_no_other_thread_has_it() -> None:
    scratch, others = Scratch(), []
    mine = scratch.lend(1000)
    thread = threading.Thread(target=lambda: others.append(scratch.lend(1000)))
    thread.start()
    thread.join()

    assert np.shares_memory(mine, scratch.lend(500))
    assert not np.shares_memory(mine, others[0])
    assert len(scratch.lend(2000)) == 2000
    assert not np.shares_memory(scratch.lend(MOST_KEPT + 1), scratch.lend(MOST_KEPT + 1))


@pytest.mark.parametrize(("height", "width"), [(100, 130), (32, 40), (300, 90), (48, 48)])
def test_resizing_gives_the_pixels_of_torchs_own_function(height: int, width: int) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (height, width, 3), dtype=np.uint8)
    images = torch.from_numpy(pixels)[None].permute(0, 3, 1, 2)

    theirs = torch.nn.functional.interpolate(images, (48, 48), mode="bilinear", antialias=True)

    assert np.array_equal(resized(pixels, 48), theirs[0].permute(1, 2, 0).numpy())


@pytest.mark.parametrize(("height", "width"), [(100, 130), (32, 40), (300, 90), (48, 48)])
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


@pytest.mark.skipif(not TASKS.is_dir(), reason="counts threads in /proc")
def test_decoding_threads_start_no_threads_of_torch() -> None:
    """Each would bring a team of its own, whose members wait in a loop and take the processor from the others."""
    data = simplejpeg.encode_jpeg(np.random.default_rng(3).integers(0, 256, (500, 600, 3), dtype=np.uint8))
    rows = FloatRows(1, 224, Normaliser(IMAGENET, 224, CPU, True), Memory(), channels_last=True)
    counts = []

    def decode() -> None:
        before = len(list(TASKS.iterdir()))
        rows.put(0, data, View(lambda height, width: Crop(0, 0, 450, 440), True))
        rows.copy(0, 0)
        counts.append(len(list(TASKS.iterdir())) - before)

    torch.set_num_threads(4)
    thread = threading.Thread(target=decode)
    thread.start()
    thread.join()

    assert counts == [0]
