"""Small files, other than JPEGs, that would take gigabytes or hours with one version of Pillow or another."""

import io
import struct
import warnings
import zlib
from collections.abc import Sequence

import numpy as np
import pytest
from PIL import Image
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from trainer.datasets.encoded import _opened, _silence_warnings, format_of, sides_of, whole
from trainer.datasets.unreadable import UnreadableError

Tag = tuple[int, int, int, int]  # its number, its type, how many values, and the value or the place of them
GREY: list[Tag] = [(258, 3, 1, 8), (262, 3, 1, 1), (277, 3, 1, 1)]
LONG = 4


def tiff(sides: tuple[int, int], tags: Sequence[Tag], content: bytes = b"") -> bytes:
    """A grey image; `content` lies at byte 8."""
    tags = sorted([(256, LONG, 1, sides[0]), (257, LONG, 1, sides[1]), *GREY, *tags], key=lambda tag: tag[0])
    rows = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    return b"II*\0" + struct.pack("<I", 8 + len(content)) + content + struct.pack("<H", len(tags)) + rows + bytes(4)


def tiled(sides: tuple[int, int], *tile: tuple[int, int]) -> bytes:
    """As tiff(), in tiles that all lie in one place.  tile: its width and length, or several of them."""
    packed = zlib.compress(bytes(256))
    tags = [(tag, LONG, 1, side) for one in tile for tag, side in zip((322, 323), one, strict=True)]
    return tiff(sides, [(259, 3, 1, 8), (324, LONG, 1, 8), (325, LONG, 1, len(packed)), *tags], packed)


def test_an_image_in_tiles_is_read() -> None:
    assert whole(tiled((16, 16), (16, 16))).shape == (16, 16, 3)


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("mode", ["L", "RGB", "P", "I;16", "CMYK"])
def test_a_usual_tiff_is_read(mode: str, big: bool) -> None:
    file = io.BytesIO()
    Image.new(mode, (40, 30)).save(file, "TIFF", big_tiff=big, compression="tiff_lzw", dpi=(72, 72), description="a")

    assert (sides_of(file.getvalue()), format_of(file.getvalue())) == ((40, 30), "TIFF")
    assert whole(file.getvalue()).shape == (30, 40, 3)


def test_a_tile_far_larger_than_its_image_is_not_decoded() -> None:
    """Two megabytes unpack to a tile of two gigabytes, of an image of 16 pixels a side."""
    with pytest.raises(UnreadableError, match="more than 89,478,485 pixels"):
        whole(tiled((16, 16), (9600, 9600)))


def test_tiles_that_are_hours_of_work_together_are_not_decoded() -> None:
    """Of an image one pixel wide: 160 kB may have ten thousand tiles of 80 million pixels each."""
    with pytest.raises(UnreadableError, match="more than 89,478,485 pixels"):
        whole(tiled((1, 10_000), (80_000_000, 1)))


def test_no_tag_is_there_twice_of_which_the_decoder_believes_another_than_was_looked_at() -> None:
    with pytest.raises(UnreadableError, match="tags that cannot be true"):
        whole(tiled((16, 16), (9600, 9600), (16, 16)))


def test_tags_that_share_a_megabyte_are_not_copied_to_gigabytes() -> None:
    tags = [(40_000 + number, 7, 2**20, 8) for number in range(3000)]

    with pytest.raises(UnreadableError, match="tags that cannot be true"):
        sides_of(tiff((16, 16), tags, bytes(2**20)))


@pytest.mark.parametrize("leading", [34665, 34853, 40965])
@pytest.mark.parametrize("kind", [3, LONG])
def test_nor_are_the_tags_that_a_tag_leads_to(leading: int, kind: int) -> None:
    """Exif and GPS, which Pillow reads with the image: up to version 12 it copied each of their values."""
    further = [(1000 + number, 7, 2**20, 8) for number in range(3000)]
    content = bytes(2**20) + struct.pack("<H", len(further)) + b"".join(struct.pack("<HHII", *tag) for tag in further)

    with pytest.raises(UnreadableError, match="tags that cannot be true"):
        whole(tiff((16, 16), [(leading, kind, 1, 8 + 2**20)], content))


def test_tags_that_lead_to_themselves_are_not_followed_for_ever() -> None:
    place = 8  # of 65,535 tags, each of which leads to all of them
    tags = struct.pack("<H", 65_535) + struct.pack("<HHII", 40965, LONG, 1, place) * 65_535

    with pytest.raises(UnreadableError, match="tags that cannot be true"):
        sides_of(tiff((16, 16), [(34665, LONG, 1, place)], tags))


def test_nor_again_and_again_where_they_take_no_bytes() -> None:
    """A hundred looks at 2000 tags of no values, of which each counts all the same."""
    empty = struct.pack("<HHII", 1000, 7, 0, 0) * 2000

    def leading(place: int) -> bytes:
        return struct.pack("<H", 2100) + struct.pack("<HHII", 40965, LONG, 1, place) * 100 + empty

    second = 8 + len(leading(0))
    with pytest.raises(UnreadableError, match="tags that cannot be true"):
        sides_of(tiff((16, 16), [(34665, LONG, 1, 8)], leading(second) + leading(second)))


def test_a_tag_leads_to_one_place_only() -> None:
    with pytest.raises(UnreadableError, match="tags that cannot be true"):
        sides_of(tiff((16, 16), [(34665, LONG, 2, 8)], bytes(8)))


def test_a_camera_may_say_a_thing_twice() -> None:
    twice = struct.pack("<H", 2) + struct.pack("<HHII", 1000, 3, 1, 1) * 2 + bytes(6)
    packed = zlib.compress(bytes(256))
    tags = [(259, 3, 1, 8), (273, LONG, 1, 8), (278, LONG, 1, 16), (279, LONG, 1, len(packed))]

    image = tiff((16, 16), [*tags, (34665, LONG, 1, 8 + len(packed))], packed + twice)

    assert whole(image).shape == (16, 16, 3)


@pytest.mark.parametrize(
    "data",
    [b"II*\0\0\0", b"II+\0\x08\0\0\0" + b"\xff" * 8, b"II+\0\x08\0\0\0\x10" + bytes(7) + b"\xff" * 8],
    ids=["cut off", "tags beyond all files", "as many tags as no file has"],
)
def test_what_is_not_there_is_told_in_a_sentence(data: bytes) -> None:
    """Which is the reader's, and not that of what looks at the tags before."""
    with pytest.raises(UnreadableError, match=r"^(?!unpack|Python int)"):
        sides_of(data)


@pytest.mark.parametrize("big", [False, True])
def test_a_tiff_with_usual_tags_of_a_camera_is_read(big: bool) -> None:
    file, tags = io.BytesIO(), ImageFileDirectory_v2()
    tags[34665] = {36867: "2026:01:01 00:00:00", 37500: bytes(5000), 40965: {1: "R98"}}
    tags[34853] = {1: "N", 2: (1.0, 2.0, 3.0)}
    Image.new("RGB", (40, 30)).save(file, "TIFF", big_tiff=big, tiffinfo=tags)

    assert whole(file.getvalue()).shape == (30, 40, 3)


def png(chunks: bytes) -> bytes:
    """A PNG with `chunks` behind its header."""
    file = io.BytesIO()
    Image.new("RGB", (4, 4)).save(file, "PNG")
    data = file.getvalue()
    return data[:33] + chunks + data[33:]


def profile(content: bytes) -> bytes:
    part = b"iCCP" + b"x\0\0" + zlib.compress(content)
    return struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part))


def test_a_png_with_a_colour_profile_is_read() -> None:
    assert whole(png(profile(bytes(1000)))).shape == (4, 4, 3)


def test_colour_profiles_of_which_a_kilobyte_unpacks_to_a_megabyte_are_not_unpacked_by_the_thousand() -> None:
    """Pillow 12 took a minute for a file of 12 MB."""
    with pytest.raises(UnreadableError, match="too many colour profiles"):
        sides_of(png(profile(bytes(1000)) * 101))


def test_the_tags_of_a_jpeg_are_not_looked_at() -> None:
    """Pillow has them at hand for the dots per inch, and up to version 12 copied each of their values, too."""
    exif = Image.Exif()
    exif[270] = "a text"
    file = io.BytesIO()
    Image.new("RGB", (40, 30)).save(file, "JPEG", exif=exif)

    with _opened(file.getvalue()) as image:
        assert (image.size, "exif" in image.info) == ((40, 30), False)


def test_nor_are_those_that_tell_of_images_behind_the_first() -> None:
    """As phones write them.  Up to Pillow 12 a file of 66 kB, whose tags share one place, took 3.5 GB."""
    first, second = Image.new("RGB", (40, 30)), Image.new("RGB", (4, 3))
    file = io.BytesIO()
    first.save(file, "MPO", save_all=True, append_images=[second])
    assert Image.open(io.BytesIO(file.getvalue())).format == "MPO"

    with _opened(file.getvalue()) as image:
        assert (image.format, image.size, "mp" in image.info) == ("JPEG", (40, 30), False)
    assert whole(file.getvalue()).shape == (30, 40, 3)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def test_pixels_may_come_in_any_number_of_pieces() -> None:
    """Only what stands before them may not."""
    rows = bytearray(np.random.default_rng(0).bytes(201 * 200))
    rows[::201] = bytes(200)  # no filter
    packed = zlib.compress(bytes(rows), 0)
    pieces = b"".join(chunk(b"IDAT", packed[at : at + 2]) for at in range(0, len(packed), 2))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 200, 200, 8, 0, 0, 0, 0))

    assert whole(b"\x89PNG\r\n\x1a\n" + head + pieces + chunk(b"IEND", b"")).shape == (200, 200, 3)


def test_a_part_of_a_png_may_begin_as_the_tags_of_a_jpeg() -> None:
    """As some programs write their tags, and a text of that name; each part has a checksum."""
    file = io.BytesIO()
    Image.new("RGB", (40, 30)).save(file, "PNG")
    head, rest = file.getvalue()[:33], file.getvalue()[33:]
    for kind, content in [
        (b"eXIf", b"Exif\0\0II*\0\x08\0\0\0\0\0"),
        (b"tEXt", b"Exif\0a text"),
        (b"tEXt", b"MPF\0a text"),
    ]:
        assert whole(head + chunk(kind, content) + rest).shape == (30, 40, 3)


@pytest.mark.parametrize(
    "comments",
    [b"\x21\xfe" + (b"\xff" + b"a" * 255) * 60_000 + b"\0", b"\x21\xfe\x01a\0" * 60_000],
    ids=["one of 15 MB", "60,000"],
)
def test_comments_of_a_gif_are_not_read_for_hours(comments: bytes) -> None:
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "GIF")
    begin = file.getvalue().index(b",\0\0\0\0")

    with pytest.raises(UnreadableError, match="too much before its pixels"):
        whole(file.getvalue()[:begin] + comments + file.getvalue()[begin:])


def test_comments_of_a_ppm_are_not_read_for_hours() -> None:
    """Up to version 13, Pillow copies what follows for each of them."""
    assert whole(b"P2 2 1 255\n0 # black\n255").tolist() == [[[0] * 3, [255] * 3]]
    for head in (b"P1 2 1\n0 ", b"P2 2 1 255\n0 ", b"P3 1 1 255\n0 0 "):
        with pytest.raises(UnreadableError, match="too many comments"):
            whole(head + b"#\n" * 500_000 + b"1")


def test_a_gap_of_255_very_long_rows_is_not_filled() -> None:
    def bmp(width: int) -> bytes:
        """One row, of which a gap is all: as Pillow reads it, and as Pillow 11 did, two bytes too late."""
        pixels = bytes([0, 2, 0, 255, 0, 255, 0, 1])
        header = struct.pack("<IiiHHIIiiII", 40, width, 1, 1, 8, 1, len(pixels), 0, 0, 256, 0) + bytes(1024)
        return b"BM" + struct.pack("<IHHI", 14 + len(header) + len(pixels), 0, 0, 14 + len(header)) + header + pixels

    assert whole(bmp(500)).shape == (1, 500, 3)
    with pytest.raises(UnreadableError, match="more than 89,478,485 pixels"):
        whole(bmp(8_000_000))


def test_odd_tags_fill_no_log() -> None:
    tags = [(40_000 + number, 7, 100, 2**31) for number in range(50)]  # far behind the end
    odd = tiff((1, 1), [(273, LONG, 1, 8), (278, LONG, 1, 1), (279, LONG, 1, 1), *tags], b"\xff")
    _silence_warnings.cache_clear()  # pytest has reset the warnings since another test asked for it

    with warnings.catch_warnings(record=True, action="always") as told:
        assert np.array_equal(whole(odd), [[[255, 255, 255]]])

    assert told == []
