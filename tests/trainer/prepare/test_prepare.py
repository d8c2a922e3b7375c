"""A preparation: what it leaves, that it is the same each time, and that nothing of it is lost."""

import io
import json
import os
import shutil
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
from trainer.prepare import pool, shard, whole


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
    assert (manifest.name, manifest.classes, manifest.resize, manifest.quality) == (
        "photos",
        ("cat", "dog"),
        None,
        None,
    )
    assert (manifest.splits.train.images, manifest.splits.val.images, manifest.bad_images) == (12, 6, 0)
    assert len(manifest.splits.train.shards) > 1
    assert sorted(path.name for path in (tmp_path / "prepared").iterdir()) == ["manifest.json", "train", "val"]


def test_training_images_are_shuffled_once_and_the_others_are_not(photos, prepared, tmp_path: Path) -> None:
    prepared(photos(train=40))

    train, val = (list(samples(tmp_path / "prepared", half)) for half in ("train", "val"))
    assert train != sorted(train)
    assert val == sorted(val)


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

    with pytest.raises(
        DataError, match=r"2 images could not be read \(1 allowed\): train/cat/0003\.jpg .*--max-bad-images 2"
    ):
        prepared(source, max_bad_images=1)
    manifest = prepared(source, max_bad_images=2)

    report = (tmp_path / "prepared/bad-images.txt").read_text()
    assert report == "train/cat/0003.jpg: Truncated File Read\nval/dog/0001.jpg: empty\n"
    assert (manifest.bad_images, manifest.splits.train.images, manifest.splits.val.images) == (2, 11, 5)
    assert "00000003-0003" not in samples(tmp_path / "prepared", "train")


def test_replacing_a_damaged_image_makes_its_shard_anew_and_no_other(
    photos, prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = photos()
    good = (source / "train/cat/0003.jpg").read_bytes()
    (source / "train/cat/0003.jpg").write_bytes(b"no")
    with pytest.raises(DataError):
        prepared(source)
    made: list[str] = []
    make = shard._make
    monkeypatch.setattr(shard, "_make", lambda task, count: made.append(task.file) or make(task, count))

    (source / "train/cat/0003.jpg").write_bytes(good)
    prepared(source)

    prepared(source, "unbroken")
    assert len(made) == 1 + len(list((tmp_path / "unbroken").rglob("*.tar")))
    assert content(tmp_path / "prepared") == content(tmp_path / "unbroken")


def test_prepared_again_nothing_is_done_and_other_flags_are_refused(photos, prepared, tmp_path: Path) -> None:
    source = photos()
    first = prepared(source)
    before = content(tmp_path / "prepared")

    assert prepared(source) == first
    with pytest.raises(SettingsError, match="is prepared already, from other images or with other flags; give another"):
        prepared(source, resize=32)
    (source / "train/cat/new.jpg").write_bytes(photo(99))
    with pytest.raises(SettingsError, match="prepared already"):
        prepared(source)

    assert content(tmp_path / "prepared") == before


def test_a_shard_that_was_altered_since_is_made_anew(photos, prepared, tmp_path: Path) -> None:
    source = photos()
    prepared(source, "unbroken")
    (source / "val/cat/0000.jpg").rename(away := tmp_path / "away.jpg")
    (source / "val/cat/0000.jpg").write_bytes(b"no")
    with pytest.raises(DataError):
        prepared(source)

    shutil.copy2(away, source / "val/cat/0000.jpg")
    file = tmp_path / "prepared/train/000000.tar"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    prepared(source)

    assert content(tmp_path / "prepared") == content(tmp_path / "unbroken")


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

    monkeypatch.setattr(whole, "make", failing_disk)

    with pytest.raises(MachineError, match=r"val/000000\.tar: its bytes are not those that were written; the disk may"):
        prepared(source)

    assert find_manifest_fails(tmp_path / "prepared")


def find_manifest_fails(folder: Path) -> bool:
    try:
        return find_manifest(folder) is None
    except DataError as error:
        return "is not prepared to the end; run python -m trainer.prepare again to resume" in str(error)


def test_a_full_disk_is_a_sentence_and_leaves_no_part(
    photos, prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(FullDisk, match=r"no room left on the disk of .*prepared; make some, and run the same command"):
        prepared(photos())

    assert list((tmp_path / "prepared").rglob("*.part")) == []


def test_an_earlier_starts_other_shards_are_removed(photos, prepared, tmp_path: Path) -> None:
    source = photos()
    (source / "val/cat/0000.jpg").write_bytes(b"no")
    with pytest.raises(DataError):
        prepared(source, shard_bytes=1)
    (tmp_path / "prepared/train/000003.part").write_bytes(b"cut off")

    manifest = prepared(source, max_bad_images=1)

    kept = {str(path.relative_to(tmp_path / "prepared")) for path in (tmp_path / "prepared").glob("*/*")}
    splits = manifest.splits
    listed = {shard.file for half in (splits.train, splits.val) for shard in half.shards}
    assert kept == listed | {"train/index.npy", "val/index.npy"}


def test_a_folder_with_other_files_is_left_alone(photos, prepared, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.tex").write_text("mine")

    with pytest.raises(
        SettingsError, match=r"thesis holds other files, such as chapter\.tex; give a new folder as DST"
    ):
        prepared(photos(), "thesis")

    assert content(tmp_path / "thesis") == {"chapter.tex": b"mine"}


def test_two_preparations_never_share_a_folder(photos, prepared, tmp_path: Path) -> None:
    source = photos()
    refused = []
    find = whole.find_source

    def meanwhile(*args):
        with pytest.raises(MachineError, match="is in use by process"):
            prepared(source)
        refused.append(1)
        return find(*args)

    whole.find_source = meanwhile
    try:
        prepared(source)
    finally:
        whole.find_source = find

    assert refused == [1]


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
@pytest.mark.parametrize(
    ("number", "code", "said_first"), [(signal.SIGINT, 130, "stopped"), (signal.SIGTERM, 75, "asked to stop")]
)
def test_asked_to_stop_it_keeps_what_is_whole_and_leaves_no_process(
    number: int, code: int, said_first: str, many, tmp_path: Path
) -> None:
    target = tmp_path / "prepared"
    process = start(many, target, "--no-resize", "--workers", "2")
    wait_for_shards(target, process, 1)

    process.send_signal(number)
    _, said = process.communicate(timeout=30)

    assert process.returncode == code
    assert said.decode() == f"{said_first}; finished shards are kept: run the same command again to resume.\n"
    assert list(target.rglob("*.part")) == []
    record = json.loads(min(target.glob(".prepare/train-*.json")).read_text())
    assert record["places"]


def killed(task: int, count) -> int:
    if task == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


@pytest.mark.slow("a killed worker of trainer.prepare is a sentence")
def test_a_worker_that_is_killed_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"a worker was killed \(exit code -9\), probably for lack of memory"):
        list(pool.run_all(range(5), killed, 2, lambda done: None))
