import io
import random
import warnings
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from trainer.datasets.crops import Crop
from trainer.datasets.decode import read_crop
from trainer.datasets.encoded import UnreadableError, _silence_warnings, sides_of


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


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"not an image", "not an image"),
        (
            simplejpeg.encode_jpeg(np.zeros((64, 64, 3), np.uint8))[:-90],
            r"image file is truncated \(4 bytes not processed\)",
        ),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n", "not an image"),
    ],
    ids=["empty", "text", "truncated", "a program for ghostscript"],
)
def test_damaged_files_are_unreadable(tmp_path: Path, data: bytes, why: str) -> None:
    (tmp_path / "a.jpg").write_bytes(data)

    with pytest.raises(UnreadableError, match=f"^{why}$"):
        read_crop(tmp_path / "a.jpg", whole, 8)
    if data[:2] != b"\xff\xd8":
        with pytest.raises(UnreadableError, match=f"^{why}$"):
            sides_of(data)


def test_sides_come_as_width_and_height(tmp_path: Path) -> None:
    assert sides_of(saved(tmp_path / "a.jpg", "RGB", (0, 0, 0)).read_bytes()) == (20, 10)


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

    with pytest.raises(UnreadableError, match="pixels of 32 bits, whose brightest value is unknown: save it with 8 or"):
        read_crop(tmp_path / "a.tif", whole, 8)


def test_a_link_is_followed(tmp_path: Path) -> None:
    saved(tmp_path / "a.jpg", "RGB", (0, 0, 0))
    (tmp_path / "b.jpg").symlink_to("a.jpg")
    (tmp_path / "c.jpg").symlink_to("nowhere.jpg")

    assert read_crop(tmp_path / "b.jpg", whole, 8).shape == (8, 8, 3)
    with pytest.raises(UnreadableError, match="No such file or directory"):
        read_crop(tmp_path / "c.jpg", whole, 8)


def claiming(kind: str, width: int, height: int) -> bytes:
    """A small image whose header claims to be a large one."""
    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, kind)
    data = bytearray(file.getvalue())
    if kind == "JPEG":
        at = data.index(b"\xff\xc0") + 5
        data[at : at + 4] = height.to_bytes(2) + width.to_bytes(2)
    else:
        data[18:26] = width.to_bytes(4, "little") + height.to_bytes(4, "little")
    return bytes(data)


@pytest.mark.parametrize("kind", ["JPEG", "BMP"])
def test_an_image_that_would_fill_the_memory_is_not_decoded(kind: str, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(claiming(kind, 30_000, 30_000))

    with pytest.raises(UnreadableError, match=r"^more than 178,956,970 pixels: shrink it$"):
        read_crop(tmp_path / "a.jpg", whole, 8)


@pytest.mark.parametrize("kind", ["JPEG", "BMP"])
def test_of_a_large_image_nothing_is_printed(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 150)  # Pillow warns above it, and refuses twice as many
    saved(tmp_path / "a.jpg", "RGB", (0, 0, 0), kind)
    _silence_warnings.cache_clear()  # pytest has reset the warnings since another test asked for it

    with warnings.catch_warnings(record=True, action="always") as told:
        assert read_crop(tmp_path / "a.jpg", whole, 8).shape == (8, 8, 3)

    assert told == []


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP"])
def test_any_bytes_become_pixels_or_a_reason(kind: str, tmp_path: Path) -> None:
    """Of every kind of file, copies with bytes changed, cut off or put in."""
    rng, path, file = random.Random(kind), tmp_path / "a.jpg", io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)).save(file, kind)
    reasons = []
    for _ in range(60):
        data = bytearray(file.getvalue())
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(data) if rng.random() < 0.5 else 64)  # half of them in the header
            data[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(4))
        path.write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.2 else data)
        try:
            assert read_crop(path, whole, 8).shape == (8, 8, 3)
        except UnreadableError as error:
            reasons.append(str(error))
    assert reasons
    assert all(reason and reason.isprintable() and len(reason) <= 80 and "0x7" not in reason for reason in reasons)
