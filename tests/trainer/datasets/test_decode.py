import io
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from trainer.datasets.crops import Crop
from trainer.datasets.decode import image_sides, read_crop
from trainer.datasets.unreadable import UnreadableError


def whole(height: int, width: int) -> Crop:
    return Crop(0, 0, height, width)


def saved(path: Path, mode: str, colour: object, kind: str = "JPEG") -> Path:
    Image.new(mode, (20, 10), colour).save(path, kind)  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize(
    ("mode", "colour", "kind", "expected"),
    [
        ("RGB", (200, 40, 90), "JPEG", (200, 40, 90)),
        ("L", 77, "JPEG", (77, 77, 77)),
        ("CMYK", (255, 0, 0, 0), "JPEG", (0, 255, 255)),
        ("RGB", (200, 40, 90), "PNG", (200, 40, 90)),
        ("P", 0, "GIF", (0, 0, 0)),
    ],
    ids=["colour", "grey", "cmyk", "png named jpg", "gif named jpg"],
)
def test_every_kind_of_file_becomes_rgb(
    tmp_path: Path, mode: str, colour: object, kind: str, expected: tuple[int, int, int]
) -> None:
    pixels = read_crop(saved(tmp_path / "a.jpg", mode, colour, kind), whole, 8)

    assert pixels.shape == (8, 8, 3)
    assert np.abs(pixels.astype(int) - expected).max() <= 2  # JPEG rounds


def test_an_image_of_the_right_size_is_decoded_exactly(tmp_path: Path) -> None:
    data = simplejpeg.encode_jpeg(np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8))
    (tmp_path / "a.jpg").write_bytes(data)

    pixels = read_crop(tmp_path / "a.jpg", whole, 32)

    assert np.array_equal(pixels, np.asarray(Image.open(io.BytesIO(data))))


def test_decoding_smaller_shows_the_same_part_of_the_image(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 512).astype(np.uint8)
    image = np.stack([np.tile(ramp, (512, 1)), np.tile(ramp[:, None], (1, 512)), np.zeros((512, 512), np.uint8)], 2)
    (tmp_path / "a.jpg").write_bytes(simplejpeg.encode_jpeg(image, quality=95))
    crop = Crop(64, 128, 256, 320)

    pixels = read_crop(tmp_path / "a.jpg", lambda height, width: crop, 32)

    expected = np.asarray(Image.fromarray(image).resize((32, 32), Image.Resampling.BOX, (128, 64, 448, 320)))
    assert np.abs(pixels.astype(int) - expected).max() <= 4


@pytest.mark.parametrize("data", [b"", b"not an image", simplejpeg.encode_jpeg(np.zeros((64, 64, 3), np.uint8))[:-90]])
def test_damaged_files_are_unreadable(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.jpg").write_bytes(data)

    with pytest.raises(UnreadableError, match=r"a\.jpg"):
        read_crop(tmp_path / "a.jpg", whole, 8)


def test_garbage_in_the_middle_of_a_jpeg_is_noticed(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = bytearray(simplejpeg.encode_jpeg(noise))
    data[len(data) // 2 : len(data) // 2 + 200] = b"\xff\xd0" * 100
    (tmp_path / "a.jpg").write_bytes(data)

    with pytest.raises(UnreadableError):
        read_crop(tmp_path / "a.jpg", whole, 64)


def test_sides_come_as_width_and_height(tmp_path: Path) -> None:
    assert image_sides(saved(tmp_path / "a.jpg", "RGB", (0, 0, 0))) == (20, 10)
