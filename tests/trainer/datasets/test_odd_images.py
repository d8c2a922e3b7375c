"""Images that torchvision's ImageFolder reads are read, whatever is odd about them; and bombs only as far as Pillow's
own limits go."""

import io
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from trainer.datasets.decode import crop
from trainer.datasets.encoded import UnreadableError, decode_image, sides_of
from trainer.datasets.order import Crop
from trainer.prepare.shard import Recipe, prepared

PIXELS = np.kron(np.random.default_rng(7).integers(0, 256, (8, 8, 3), dtype=np.uint8), np.ones((6, 8, 1), np.uint8))


def saved(kind: str, mode: str = "RGB", **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).convert(mode).save(file, kind, **options)
    return file.getvalue()


JPEG = saved("JPEG", quality=85)


def before(marker: bytes, extra: bytes) -> bytes:
    at = JPEG.index(marker)
    return JPEG[:at] + extra + JPEG[at:]


def whole_image(height: int, width: int) -> Crop:
    return Crop(0, 0, height, width)


ODD = {
    "padding before the end": JPEG[:-2] + bytes(19) + JPEG[-2:],
    "bytes between two parts": before(b"\xff\xdb", b"\0\0"),
    "JFIF 0.00": JPEG.replace(b"JFIF\0\x01\x01", b"JFIF\0\0\0"),
    "bytes behind its end": JPEG + bytes(1000),
    "a damaged pixel": JPEG[:-60] + b"\xff\xd1" + JPEG[-58:],
    "progressive": saved("JPEG", progressive=True),
    "grey": saved("JPEG", "L"),
    "CMYK": saved("JPEG", "CMYK"),
    "stored as RGB": saved("JPEG", keep_rgb=True),
    "several in one": saved("MPO", save_all=True, append_images=[Image.new("RGB", (4, 3))]),
    "1 bit": saved("PNG", "1"),
    "palette": saved("PNG", "P"),
    "alpha": saved("PNG", "RGBA"),
    "grey with alpha": saved("PNG", "LA"),
    "TIFF": saved("TIFF", "CMYK", compression="tiff_lzw"),
    "WebP": saved("WEBP", lossless=True),
    "AVIF": saved("AVIF"),
    "JPEG 2000": saved("JPEG2000"),
}  # fmt: skip


@pytest.mark.parametrize("data", ODD.values(), ids=ODD)
def test_what_pillow_reads_is_read(data: bytes) -> None:
    with Image.open(io.BytesIO(data)) as image:
        expected = np.asarray(image.convert("RGB")).astype(int)

    assert sides_of(data) == (64, 48)
    assert np.abs(decode_image(data) - expected).max() <= 2
    assert crop(data, whole_image, 32).shape == (32, 32, 3)
    assert np.abs(crop(data, lambda height, width: Crop(8, 16, 32, 32), 32) - expected[8:40, 16:48]).max() <= 2
    assert prepared(data, Recipe(None, 92))[0] == data
    small, extension = prepared(data, Recipe(32, 92))
    assert (extension, sides_of(small)) == ("jpg", (42, 32))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (JPEG[:-2], "image file is truncated"),
        (JPEG[: len(JPEG) // 2], "image file is truncated"),
        (JPEG[:20], "not an image|Truncated|cut off"),
        (saved("PNG")[:-40], "truncated|broken"),
    ],
    ids=["no end", "half", "a head", "a PNG without its end"],
)
def test_what_pillow_refuses_is_bad(data: bytes, why: str) -> None:
    for read in (decode_image, lambda data: crop(data, whole_image, 8), lambda data: prepared(data, Recipe(256, 92))):
        with pytest.raises(UnreadableError, match=why):
            read(data)


@pytest.mark.parametrize("read", [decode_image, lambda data: crop(data, whole_image, 8)], ids=["whole", "crop"])
def test_pillows_limit_of_pixels_holds_for_every_format(
    read: Callable[[bytes], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 64 * 48 // 2 - 1)
    for kind in ("JPEG", "PNG", "WEBP"):
        with pytest.raises(UnreadableError, match=r"^more than 3,070 pixels"):
            read(saved(kind))
