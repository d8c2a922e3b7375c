"""Archives that a stranger made to take gigabytes, minutes or a traceback."""

import gzip
import io
import pickle
import re
import tarfile
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.trainer.prepare.test_sources import batch, cifar
from trainer.datasets.archive import Part, entries, tar_of
from trainer.datasets.pickled import read_arrays
from trainer.errors import DataError


def with_a_hole(size: int) -> bytes:
    """A header of a file of so many bytes, of which none is in the tar."""
    info = tarfile.TarInfo("cifar/test_batch")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = b"\x80" + size.to_bytes(11)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def test_of_a_file_that_is_one_hole_nothing_is_read(prepared, tmp_path: Path) -> None:
    header = with_a_hole(2**27)
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(gzip.compress(header + bytes(9999)))

    assert tarfile.TarInfo.frombuf(header, "ascii", "strict").type == tarfile.GNUTYPE_SPARSE
    with pytest.raises(DataError, match=r"no archive of CIFAR's \('meta'\)"):  # it is passed over
        prepared(tmp_path / "cifar-10-python.tar.gz")


@pytest.mark.timeout(30)
def test_a_file_with_holes_does_not_lead_back_to_its_own_header(prepared, tmp_path: Path) -> None:
    """CVE-2025-8194, with a size that looks right: tarfile goes on by one, and shows the other."""
    header = bytearray(with_a_hole(1))
    header[124:136] = b"\xff" + (-512).to_bytes(11, "big", signed=True)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    circle = tarfile.TarInfo("train/cat/0.jpg").tobuf() + header + bytes(9999)
    (tmp_path / "a.tar").write_bytes(circle)
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(gzip.compress(circle))
    for name in ("a.tar", "cifar-10-python.tar.gz"):
        with pytest.raises(DataError, match="a member whose header was read before"):
            prepared(tmp_path / name)


def test_what_honest_headers_say_is_read() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", pax_headers={"comment": "a" * 40}) as made:
        for number in range(3):
            info = tarfile.TarInfo("\u00e4" * 300 + str(number))
            info.pax_headers = {"SCHILY.xattr.user.note": "1 2 3 " * 1000}
            made.addfile(info)
    buffer.seek(0)

    with tar_of(Part(buffer)) as found:
        assert [info.name[-2:] for info in entries(found)] == ["\u00e40", "\u00e41", "\u00e42"]


def test_tars_are_opened_in_one_place_unless_their_digest_is_known() -> None:
    opening = {
        path.relative_to(ROOT).as_posix()
        for package in ("trainer", "launch")
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"tarfile\.open\((?!.*mode=\"w)", path.read_text())
    }

    assert opening == {"trainer/datasets/archive.py", "trainer/prepare/shard.py", "trainer/script/unpack.py"}


def test_a_key_that_has_the_same_text_again_and_again_is_not_written_out() -> None:
    """A kilobyte of an archive took gigabytes."""
    text = "a" * 2**16

    with pytest.raises(ValueError, match="no text"):
        read_arrays(pickle.dumps({(text,) * 2**8: 1}, 2))


def test_a_class_of_cifar_with_a_very_long_name_is_refused(prepared, tmp_path: Path) -> None:
    files = {"data_batch_1": batch(1, [0]), "test_batch": batch(1, [0]), "batches.meta": {b"label_names": [b"a" * 999]}}

    with pytest.raises(DataError, match="a class whose name is too long"):
        prepared(cifar(tmp_path / "cifar-10-python.tar.gz", files))


@pytest.mark.parametrize("name", ["photos.tar", "cifar-10-python.tar.gz"])
def test_a_thousand_names_of_names_are_refused_in_a_sentence(name: str, prepared, tmp_path: Path) -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 10
    (tmp_path / name).write_bytes((info.tobuf(tarfile.GNU_FORMAT) + b"train/a/b".ljust(512, b"\0")) * 5000)

    with pytest.raises(DataError, match=r"is (no tar, or a damaged one|damaged, or no archive)"):
        prepared(tmp_path / name)


@pytest.mark.parametrize("size", [2**63, 2**80], ids=["64 bits", "more"])
def test_an_image_larger_than_any_disk_is_refused_in_a_sentence(size: int, prepared, tmp_path: Path) -> None:
    """The list of images holds numbers of 64 bits, and a header may say 88."""
    info = tarfile.TarInfo("train/cat/1.jpg")
    info.size = size
    (tmp_path / "photos.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(9999))

    with pytest.raises(DataError, match=r"is no tar, or a damaged one \(train/cat/1.jpg of"):
        prepared(tmp_path / "photos.tar")


def test_a_label_of_cifar_that_is_no_number_is_refused_in_a_sentence(prepared, tmp_path: Path) -> None:
    files = {"data_batch_1": batch(1, [0]), "batches.meta": {b"label_names": [b"cat"]}}
    files["data_batch_1"][b"labels"] = [float("inf")]

    with pytest.raises(DataError, match="cannot convert float infinity"):
        prepared(cifar(tmp_path / "cifar-10-python.tar.gz", files))


def test_an_archive_with_both_kinds_of_names_has_the_first(prepared, tmp_path: Path) -> None:
    files = {"data_batch_1": batch(1, [0]), "test_batch": batch(1, [0]), "batches.meta": {b"label_names": [b"cat"]}}
    files["meta"] = {b"fine_label_names": [b"dog"]}

    assert prepared(cifar(tmp_path / "cifar-10-python.tar.gz", files)).classes == ("cat",)
