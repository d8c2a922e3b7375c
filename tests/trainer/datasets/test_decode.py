from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from trainer.datasets.decode import read_crop
from trainer.datasets.encoded import UnreadableError
from trainer.datasets.order import Crop


def whole(height: int, width: int) -> Crop:
    return Crop(0, 0, height, width)


def test_decoding_smaller_shows_the_same_part_of_the_image(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 512).astype(np.uint8)
    image = np.stack([np.tile(ramp, (512, 1)), np.tile(ramp[:, None], (1, 512)), np.zeros((512, 512), np.uint8)], 2)
    (tmp_path / "a.jpg").write_bytes(simplejpeg.encode_jpeg(image, quality=95))
    crop = Crop(64, 128, 256, 320)

    pixels = read_crop(tmp_path / "a.jpg", lambda height, width: crop, 32)

    expected = np.asarray(Image.fromarray(image).resize((32, 32), Image.Resampling.BOX, (128, 64, 448, 320)))
    assert np.abs(pixels.astype(int) - expected).max() <= 4


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"not an image", "not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n", "not an image"),
        (None, "No such file or directory"),
    ],
    ids=["empty", "text", "a program for ghostscript", "a broken link"],
)
def test_what_is_no_image_is_unreadable(tmp_path: Path, data: bytes | None, why: str) -> None:
    if data is None:
        (tmp_path / "a.jpg").symlink_to("nowhere.jpg")
    else:
        (tmp_path / "a.jpg").write_bytes(data)

    with pytest.raises(UnreadableError, match=f"^{why}$"):
        read_crop(tmp_path / "a.jpg", whole, 8)


def grey(levels: list[int], dtype: str) -> Image.Image:
    """An image of 8 rows, one level each."""
    return Image.fromarray(np.repeat(np.array(levels, dtype), 8).reshape(8, 8))


def test_a_tiff_whose_white_is_zero_is_not_read_inverted(tmp_path: Path) -> None:
    grey([0, 257, 514, 771, 1028, 1285, 1542, 65_535], "uint16").save(tmp_path / "a.tif", tiffinfo={262: 0})

    pixels = read_crop(tmp_path / "a.tif", whole, 8)

    assert pixels[:, 0, 0].tolist() == [255, 254, 253, 252, 251, 250, 249, 0]


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.pgm"])
def test_greys_of_16_bits_keep_their_brightness(name: str, tmp_path: Path) -> None:
    levels = [0, 100, 257, 16_000, 32_768, 40_000, 65_000, 65_535]
    grey(levels, "uint16").save(tmp_path / name)

    pixels = read_crop(tmp_path / name, whole, 8)

    assert pixels[:, 0].tolist() == [[round(level / 257)] * 3 for level in levels]


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_pixels_of_unknown_brightness_are_refused_not_guessed(dtype: str, tmp_path: Path) -> None:
    grey([0, 1, 2, 3, 4, 5, 6, 7], dtype).save(tmp_path / "a.tif")

    with pytest.raises(UnreadableError, match="pixels of 32 bits"):
        read_crop(tmp_path / "a.tif", whole, 8)
