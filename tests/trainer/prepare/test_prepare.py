"""A preparation: what it leaves, that it is the same each time, and that nothing of it is lost."""

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import ROOT
from tests.trainer.prepare.conftest import content, photo
from trainer.datasets.manifest import find_manifest
from trainer.errors import DataError, FullDisk, MachineError, SettingsError
from trainer.prepare import pipeline, shard


def samples(target: Path, half: str) -> dict[str, dict[str, bytes]]:
    """As any reader of WebDataset sees it: key -> extension -> bytes."""
    found: dict[str, dict[str, bytes]] = {}
    for path in sorted((target / half).glob("*.tar")):
        with tarfile.open(path) as tar:
            for info in tar:
                key, _, extension = info.name.partition(".")
                found.setdefault(key, {})[extension] = tar.extractfile(info).read()  # type: ignore[union-attr]
    return found


def test_shards_hold_every_image_byte_for_byte_with_its_class(photos, prepared, tmp_path: Path) -> None:
    source = photos()

    manifest = prepared(source)

    files = [source / "train" / name / f"{n:04d}.jpg" for name in ("cat", "dog") for n in range(6)]
    expected = {
        f"{number:08d}-{file.stem}": {"jpg": file.read_bytes(), "cls": b"01"[number // 6 : number // 6 + 1]}
        for number, file in enumerate(files)
    }
    assert samples(tmp_path / "prepared", "train") == expected
    assert manifest == find_manifest(tmp_path / "prepared")
    assert (manifest.name, manifest.classes) == ("photos", ("cat", "dog"))
    assert (manifest.resize, manifest.quality) == (None, None)
    assert (manifest.splits.train.images, manifest.splits.val.images, manifest.bad_images) == (12, 6, 0)
    assert len(manifest.splits.train.shards) > 1
    assert sorted(path.name for path in (tmp_path / "prepared").iterdir()) == ["manifest.json", "train", "val"]


def test_the_shorter_side_is_limited_as_torchvision_limits_it(photos, prepared, tmp_path: Path) -> None:
    source = photos(train=1, val=1, width=101, height=60)
    (source / "train/cat/0000.jpg").write_bytes(small := photo(7, 30, 31))
    (source / "train/dog/0000.jpg").write_bytes(photo(8, 45, 80))
    noise = np.random.default_rng(0).integers(0, 256, (60, 101), dtype=np.uint8)  # in which filters differ
    Image.fromarray(noise).save(source / "val/cat/0000.jpg", quality=95)

    prepared(source, resize=32)

    images = {key.partition("-")[0]: found["jpg"] for key, found in samples(tmp_path / "prepared", "train").items()}
    val = samples(tmp_path / "prepared", "val")["00000000-0000"]["jpg"]
    assert images["00000000"] == small
    assert Image.open(io.BytesIO(images["00000001"])).size == (32, 56)
    assert Image.open(io.BytesIO(val)).size == (53, 32)  # Resize(32): int(32 * 101 / 60)
    resized = Image.open(source / "val/cat/0000.jpg").convert("RGB").resize((53, 32), Image.Resampling.BILINEAR)
    assert np.abs(np.asarray(resized, int) - np.asarray(Image.open(io.BytesIO(val)), int)).mean() < 4


def test_the_bytes_are_the_same_whatever_the_number_of_workers(photos, prepared, tmp_path: Path) -> None:
    source = photos(train=20)

    prepared(source, "one", resize=32)
    prepared(source, "two", resize=32, workers=2)

    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_damaged_images_are_named_counted_and_left_out(photos, prepared, tmp_path: Path) -> None:
    source = photos()
    (source / "train/cat/0003.jpg").write_bytes((source / "train/cat/0003.jpg").read_bytes()[:300])
    (source / "val/dog/0001.jpg").write_bytes(b"")

    with pytest.raises(DataError, match=r"train/cat/0003\.jpg .*--max-bad-images 2"):
        prepared(source, max_bad_images=1)
    manifest = prepared(source, max_bad_images=2)

    report = (tmp_path / "prepared/bad-images.txt").read_text()
    assert report == "train/cat/0003.jpg: Truncated File Read\nval/dog/0001.jpg: empty\n"
    assert (manifest.bad_images, manifest.splits.train.images, manifest.splits.val.images) == (2, 11, 5)
    assert "00000003-0003" not in samples(tmp_path / "prepared", "train")


def test_prepared_again_nothing_is_done_and_other_flags_are_refused(photos, prepared, tmp_path: Path) -> None:
    source = photos()
    first = prepared(source)
    before = content(tmp_path / "prepared")

    assert prepared(source) == first
    with pytest.raises(SettingsError, match="already prepared"):
        prepared(source, resize=32)
    (source / "train/cat/new.jpg").write_bytes(photo(99))
    with pytest.raises(SettingsError, match="already prepared"):
        prepared(source)

    assert content(tmp_path / "prepared") == before


def test_what_the_disk_gives_back_is_compared_with_what_was_written(
    photos, prepared, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = photos()
    make = shard.make

    def failing_disk(task, count):
        made = make(task, count)
        if task.file == "val/000000.tar":
            (task.target / task.file).write_bytes(bytes(made.bytes))
        return made

    monkeypatch.setattr(pipeline, "make", failing_disk)

    with pytest.raises(MachineError, match=r"val/000000\.tar: its content differs from what was written"):
        prepared(source)

    with pytest.raises(DataError, match="is not fully prepared"):
        find_manifest(tmp_path / "prepared")


def test_a_full_disk_is_a_sentence_and_leaves_no_part(
    photos, prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(FullDisk):
        prepared(photos())

    assert list((tmp_path / "prepared").rglob("*.part")) == []


def test_a_folder_with_other_files_is_left_alone(photos, prepared, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.tex").write_text("mine")

    with pytest.raises(SettingsError, match=r"thesis holds other files, such as chapter\.tex"):
        prepared(photos(), "thesis")

    assert content(tmp_path / "thesis") == {"chapter.tex": b"mine"}


# ---- processes


def start(source: Path, target: Path, *flags: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "trainer.prepare", str(source), str(target), "--shard-mb", "1", *flags]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for_shards(target: Path, process: subprocess.Popen[bytes], count: int) -> None:
    """Until so many are whole."""
    deadline = time.monotonic() + 30
    while len(list(target.glob(".prepare/*.json"))) < count:
        assert process.poll() is None, process.stderr.read()  # type: ignore[union-attr]
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """Some twenty shards' worth of images that are large and quickly read."""
    for half, count in (("train", 20), ("val", 1)):
        for name in ("cat", "dog"):
            folder = tmp_path / "photos" / half / name
            folder.mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (400, 400), (number, 0, 0)).save(folder / f"{number}.bmp")
    return tmp_path / "photos"


@pytest.mark.slow("trainer.prepare that is killed resumes, with the bytes of an unbroken one")
def test_killed_it_resumes_and_the_bytes_are_those_of_an_unbroken_one(many, prepared, tmp_path: Path) -> None:
    target = tmp_path / "prepared"
    process = start(many, target, "--no-resize", "--workers", "2")
    wait_for_shards(target, process, 2)
    process.kill()
    process.communicate()
    assert not (target / "manifest.json").exists()

    manifest = prepared(many, shard_bytes=10**6)

    prepared(many, "unbroken", shard_bytes=10**6)
    assert len(manifest.splits.train.shards) > 4
    assert content(target) == content(tmp_path / "unbroken")


@pytest.mark.slow("trainer.prepare that is asked to stop keeps what is whole, and leaves no process")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_asked_to_stop_it_keeps_what_is_whole_and_leaves_no_process(
    number: int, code: int, many, tmp_path: Path
) -> None:
    target = tmp_path / "prepared"
    process = start(many, target, "--no-resize", "--workers", "2")
    wait_for_shards(target, process, 1)

    process.send_signal(number)
    _, said = process.communicate(timeout=30)

    assert process.returncode == code
    assert said.decode().count("\n") == 1
    assert list(target.rglob("*.part")) == []
    record = json.loads(min(target.glob(".prepare/train-*.json")).read_text())
    assert record["places"]
