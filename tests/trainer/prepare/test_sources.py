"""What can be prepared: folders, any tar, ILSVRC's tars and CIFAR's archives, all of which give what a folder gives."""

import hashlib
import io
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from tests.trainer.prepare.conftest import content, photo
from tests.trainer.prepare.test_prepare import samples
from trainer.errors import DataError


def tar_of(path: Path, files: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize("packing", ["", "gz", "xz"])
def test_a_tar_gives_the_shards_that_its_folder_gives(packing: str, photos, prepared, tmp_path: Path) -> None:
    source = photos()
    archive = tmp_path / ("photos.tar" + (f".{packing}" if packing else ""))
    with tarfile.open(archive, f"w:{packing}") as tar:
        tar.add(source, "some/where/photos")

    from_folder, from_tar = prepared(source, "folder"), prepared(archive, "tar")

    assert from_tar.splits == from_folder.splits
    assert (from_tar.source["kind"], from_tar.source["name"]) == ("tar", archive.name)
    a, b = content(tmp_path / "folder"), content(tmp_path / "tar")
    del a["manifest.json"], b["manifest.json"]
    assert a == b


def zip_of(path: Path, files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as made:
        for name, data in files.items():
            made.writestr(name, data)
    return path


@pytest.mark.parametrize(("method", "separator"), [(zipfile.ZIP_DEFLATED, "/"), (zipfile.ZIP_STORED, "\\")])
def test_a_zip_gives_the_shards_that_its_folder_gives(
    method: int, separator: str, photos, prepared, tmp_path: Path
) -> None:
    source = photos()
    files = {f"photos/{path.relative_to(source)}": path.read_bytes() for path in source.rglob("*.jpg")}
    others = {"__MACOSX/photos/train/cat/._0000.jpg": b"mac", "photos/train/": b"", "../train/2.txt": b"x"}
    entries = {name.replace("/", separator): data for name, data in (files | others).items()}

    from_folder, from_zip = prepared(source, "folder"), prepared(zip_of(tmp_path / "a.zip", entries, method), "zip")

    assert from_zip.splits == from_folder.splits
    assert from_zip.source["name"] == "a.zip"
    assert content(tmp_path / "zip").keys() == content(tmp_path / "folder").keys()


def encrypted(data: bytes) -> bytes:
    """A zip, of which every member claims to have a password."""
    made = bytearray(data)
    for mark, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        at = -1
        while (at := made.find(mark, at + 1)) >= 0:
            made[at + flags] |= 1
    return bytes(made)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (encrypted, r"a\.zip cannot be read here \(.*password.*\)"),
        (lambda data: data[:-300], r"a\.zip is damaged"),
        (lambda data: data.replace(photo(0)[:50], bytes(50)), r"a\.zip is damaged \(Bad CRC-32 for file "),
    ],
    ids=["encrypted", "cut off", "damaged"],
)
def test_a_zip_that_cannot_be_read_is_refused(change: Any, sentence: str, prepared, tmp_path: Path) -> None:
    archive = zip_of(tmp_path / "a.zip", {"train/cat/0.jpg": photo(0)}, zipfile.ZIP_STORED)
    archive.write_bytes(change(archive.read_bytes()))

    with pytest.raises(DataError, match=sentence):
        prepared(archive)

    assert not (tmp_path / "prepared").exists()


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (["train/cat/1.jpg"], r"a\.tar has no images in val/ or test/"),
        (["cat/1.jpg"], r"a\.tar has no images in train/"),
        (["train/cat/1.jpg", "val/eel/1.jpg"], r"a\.tar, val/ has other classes than train/, such as cat"),
    ],
)
def test_a_tar_without_both_halves_is_refused(files: list[str], sentence: str, prepared, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=sentence):
        prepared(tar_of(tmp_path / "a.tar", {name: photo(0) for name in files}))

    assert not (tmp_path / "prepared").exists()


def halves(*names: str) -> dict[str, bytes]:
    """An image in each class of each of these folders."""
    paths = [f"{name}/{label}/1.jpg" for name in names for label in ("cat", "dog")]
    return {path: photo(number) for number, path in enumerate(paths)}


@pytest.mark.parametrize(
    ("names", "half"),
    [("test validation train", "validation"), ("train test", "test"), ("dev/photos/train dev/photos/val", "val")],
)
def test_a_tars_half_to_evaluate_on_is_that_of_a_folder(names: str, half: str, prepared, tmp_path: Path) -> None:
    files = halves(*names.split())
    archive = tar_of(tmp_path / "a.tar", files)

    assert prepared(archive, "tar").source["eval_split"] == half
    key = next(path for path in files if f"{half}/cat" in path)
    assert samples(tmp_path / "tar", "val")["00000000-1"]["jpg"] == files[key]


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tar.bz2"])
def test_what_is_no_tar_or_is_cut_off_is_refused(name: str, prepared, tmp_path: Path) -> None:
    packing = name.removeprefix("a.tar").replace(".", ":")
    whole = tar_of(tmp_path / name, {f"train/cat/{n}.jpg": photo(n) for n in range(9)}, f"w{packing}")
    whole.write_bytes(whole.read_bytes()[:2000] if packing else b"\x01" * 600)

    with pytest.raises(DataError, match="is damaged"):
        prepared(whole)


def test_an_image_that_is_there_twice_is_refused(prepared, tmp_path: Path) -> None:
    """As after tar --append: unpacking would keep the last."""
    names = ["train/cat/1.jpg", "train/dog/1.jpg", "val/cat/1.jpg", "val/dog/1.jpg"]
    archive = tar_of(tmp_path / "a.tar", {name: photo(number) for number, name in enumerate(names)})
    tar_of(archive, {names[1]: photo(9)}, "a")

    with pytest.raises(DataError, match=r"a\.tar, train/ has dog/1\.jpg twice.*give the folder as SRC"):
        prepared(archive)


# ---- ILSVRC


WNIDS = {1: "n02", 2: "n01", 3: "n00"}  # by the devkit's own numbers; n00 is no class, for it has children


@pytest.fixture
def ilsvrc(tmp_path: Path) -> Path:
    """The three files of ILSVRC 2012, with two classes."""
    folder = tmp_path / "ilsvrc"
    folder.mkdir()
    inner = {}
    for place, wnid in enumerate(("n02", "n01")):  # in any order
        tar = tar_of(tmp_path / "x.tar", {f"{wnid}_{n}.JPEG": photo(10 * place + n) for n in (2, 1)})
        inner[f"{wnid}.tar"] = tar.read_bytes()
    tar_of(folder / "ILSVRC2012_img_train.tar", inner)
    val = {f"ILSVRC2012_val_{n:08d}.JPEG": photo(100 + n) for n in (1, 2, 3)}
    tar_of(folder / "ILSVRC2012_img_val.tar", val)
    synsets = np.array(
        [(number, wnid, "words", "gloss", int(wnid == "n00")) for number, wnid in WNIDS.items()],
        dtype=[(name, object) for name in ("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children")],
    )
    savemat(meta := io.BytesIO(), {"synsets": synsets})
    files = {
        "ILSVRC2012_devkit_t12/data/meta.mat": meta.getvalue(),
        "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt": b"2\n1\n1\n",
    }
    tar_of(folder / "ILSVRC2012_devkit_t12.tar.gz", files, "w:gz")
    return folder


@pytest.mark.parametrize("given", ["", "ILSVRC2012_img_train.tar"])
def test_imagenets_three_files_become_classes_by_their_wordnet_ids(
    given: str, ilsvrc: Path, prepared, tmp_path: Path
) -> None:
    manifest = prepared(ilsvrc / given)

    labels = {
        key: found["cls"] for half in ("train", "val") for key, found in samples(tmp_path / "prepared", half).items()
    }
    assert manifest.classes == ("n01", "n02")
    assert labels == {
        "00000000-n01_1": b"0", "00000001-n01_2": b"0", "00000002-n02_1": b"1", "00000003-n02_2": b"1",
        "00000000-ILSVRC2012_val_00000001": b"0",
        "00000001-ILSVRC2012_val_00000002": b"1", "00000002-ILSVRC2012_val_00000003": b"1",
    }  # fmt: skip
    assert samples(tmp_path / "prepared", "train")["00000001-n01_2"]["jpg"] == photo(12)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("ILSVRC2012_img_val.tar", r"has no ILSVRC2012_img_val\.tar"),
        ("ILSVRC2012_devkit_t12.tar.gz", r"has no ILSVRC2012_devkit_t12\.tar\.gz"),
    ],
)
def test_a_missing_file_of_imagenet_is_named(name: str, sentence: str, ilsvrc: Path, prepared) -> None:
    (ilsvrc / name).unlink()

    with pytest.raises(DataError, match=sentence):
        prepared(ilsvrc)


# ---- CIFAR


@pytest.fixture
def cifar(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, dict[str, Any]], Path]:
    """cifar(path, files) -> an archive of pickles whose digests are known."""

    def make(path: Path, files: dict[str, Any]) -> Path:
        data = {name: pickle.dumps(value) for name, value in files.items()}
        known = {name: hashlib.md5(content).hexdigest() for name, content in data.items()}
        monkeypatch.setattr("trainer.prepare.cifar.MD5", known)
        return tar_of(path, {f"cifar/{name}": content for name, content in data.items()}, "w:gz")

    return make


def batch(first: int, labels: list[int], key: str = "labels") -> dict[str, Any]:
    rng = np.random.default_rng(first)
    return {"data": rng.integers(0, 256, (len(labels), 3072), dtype=np.uint8), key: labels}


def test_cifar10_keeps_every_pixel(cifar, prepared, tmp_path: Path) -> None:
    first, second, test = batch(1, [1, 0]), batch(2, [0, 1]), batch(3, [0, 1])
    meta = {"label_names": ["airplane", "automobile"]}
    archive = cifar(
        tmp_path / "cifar-10-python.tar.gz",
        {"data_batch_2": second, "data_batch_1": first, "test_batch": test, "batches.meta": meta},
    )

    manifest = prepared(archive, resize=256)

    found = samples(tmp_path / "prepared", "train")
    pixels = [np.asarray(Image.open(io.BytesIO(found[key]["png"]))) for key in sorted(found)]
    rows = np.concatenate([first["data"], second["data"]])[[1, 2, 0, 3]]  # airplanes, then automobiles
    assert (manifest.source["kind"], manifest.classes) == ("cifar", ("airplane", "automobile"))
    assert [found[key]["cls"] for key in sorted(found)] == [b"0", b"0", b"1", b"1"]
    assert np.array_equal(pixels, rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def test_cifar100_has_its_fine_classes(cifar, prepared, tmp_path: Path) -> None:
    files = {
        "train": batch(1, [1, 0], "fine_labels"), "test": batch(2, [0, 1], "fine_labels"),
        "meta": {"fine_label_names": ["apple", "bear"], "coarse_label_names": ["fruit"]},
    }  # fmt: skip

    manifest = prepared(cifar(tmp_path / "cifar-100-python.tar.gz", files).parent)

    assert (manifest.classes, manifest.splits.train.images) == (("apple", "bear"), 2)


class Harm:
    def __reduce__(self) -> Any:
        return print, ("harm",)


def test_an_archive_with_code_in_it_runs_none(prepared, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = tar_of(tmp_path / "cifar-10-python.tar.gz", {"cifar/data_batch_1": pickle.dumps(Harm())}, "w:gz")

    with pytest.raises(
        DataError, match=r"is damaged, or not an archive of CIFAR \(data_batch_1 is not the official one"
    ):
        prepared(archive)

    assert capsys.readouterr().out == ""


def test_what_is_prepared_already_is_no_source(photos, prepared, tmp_path: Path) -> None:
    prepared(photos())

    with pytest.raises(DataError, match=r"is already prepared: it has a manifest\.json; prepare its source"):
        prepared(tmp_path / "prepared", "again")


def test_a_devkit_of_something_else_is_refused(ilsvrc: Path, prepared) -> None:
    tar_of(ilsvrc / "ILSVRC2012_devkit_t12.tar.gz", {"data/meta.mat": b"no"}, "w:gz")

    with pytest.raises(DataError, match=r"ILSVRC2012_devkit_t12\.tar\.gz is damaged .*; get it again"):
        prepared(ilsvrc)
