"""launch.data publish: what is in the account afterwards, what a second run does, and what is refused."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from moto.ebs.models import ebs_backends

from launch.aws.published import content_of
from launch.rehearse.aws.ec2 import ebs
from tests.launch.data.desk import NAME, Desk, opened, write_prepared
from tests.launch.faults import Died, Fault, Faults, died_after, died_before, injected, lost, refused

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with opened(tmp_path) as desk:
        yield desk


def die_at(desk: Desk, operation: str, fault: Fault, nth: int = 1) -> None:
    """The command is killed at this call."""
    with injected(Faults().on(operation, fault, nth=nth)), pytest.raises(Died):
        desk.publish()


def volume(desk: Desk, image: Path, *, fills: bool = False) -> Path:
    """A volume made from the only snapshot."""
    (snapshot,) = desk.snapshots()
    with image.open("wb") as file:
        ebs.write_volume(ebs_backends[desk.account.id]["us-east-1"].snapshots[snapshot.id], file, fills=fills)
    return image


def content_in(image: Path, name: str) -> bytes:
    command = ["/usr/sbin/debugfs", "-R", f'cat "/{name}"', str(image)]
    return subprocess.run(command, capture_output=True, check=True).stdout


def files_in(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_everything_is_in_s3_and_in_an_encrypted_snapshot_that_was_read_back(desk: Desk) -> None:
    assert desk.publish() == 0, desk.text

    (snapshot,) = desk.snapshots()
    assert {name: content for name, content in desk.s3().items() if name != "published.json"} == files_in(desk.folder)
    assert (snapshot.status, snapshot.encrypted) == ("completed", True)
    assert (desk.record["state"], desk.record["snapshot"], desk.record["verified"]) == ("published", snapshot.id, "all")
    content = content_of({tag["key"]: tag["value"] for tag in snapshot.get_tags()})
    assert content is not None
    assert (content.train, content.val, content.bytes, content.classes, content.px) == (70, 4, 740_000, 2, 256)


@pytest.mark.parametrize(
    "fills",
    [False, pytest.param(True, marks=pytest.mark.slow("a published volume needs nothing that was not written"))],
)
def test_a_volume_made_from_it_has_the_same_files(fills: bool, desk: Desk, tmp_path: Path) -> None:
    """fills: blocks that were not written hold something; in an encrypted snapshot they need not read as zeros."""
    assert desk.publish("--to", "snapshot") == 0, desk.text
    image = volume(desk, tmp_path / "volume", fills=fills)
    checked = subprocess.run(["/usr/sbin/e2fsck", "-fn", image], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for name, content in files_in(desk.folder).items():
        assert content_in(image, name) == content


def test_publishing_again_writes_nothing(desk: Desk) -> None:
    assert desk.publish() == 0
    before = len(desk.account.requests)

    assert desk.publish() == 0
    assert desk.writes(before) == []


@pytest.mark.parametrize("verified", ["sure", None, []], ids=str)
def test_a_damaged_record_is_written_again(verified: object, desk: Desk) -> None:
    assert desk.publish() == 0, desk.text
    desk.account.put_json(f"data/{NAME}/published.json", desk.record | {"verified": verified})

    assert desk.publish() == 0, desk.text
    assert desk.record["verified"] == "all"


# ---- interrupted


def test_a_killed_publication_goes_on_where_it_was(desk: Desk) -> None:
    """Blocks that AWS has taken are not sent again."""
    die_at(desk, "PutSnapshotBlock", died_after(), nth=2)
    (pending,) = desk.snapshots()
    before = len(desk.account.requests)

    assert desk.publish() == 0, desk.text
    (snapshot,) = desk.snapshots()
    sent = [call for call in desk.account.requests[before:] if call.operation == "PutSnapshotBlock"]
    # The second block was taken, and its answer never came: it is sent again.
    assert (snapshot.id, len(sent)) == (pending.id, len(desk.blocks(snapshot.id)) - 1)


def lose_work_folder(desk: Desk, _patch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(desk.folder.with_name("photos-publishing"))


def upgrade_mke2fs(desk: Desk, patch: pytest.MonkeyPatch) -> None:
    """The same files give other blocks: with both, the snapshot would be damaged, or never be completed."""
    for name in ("blocks", "data.img"):
        (desk.folder.with_name("photos-publishing") / name).unlink()
    patch.setattr("launch.data.image._MADE", "1700000001")  # the time in all inodes


def give_up(desk: Desk, _patch: pytest.MonkeyPatch) -> None:
    """As AWS does after Timeout minutes without a block."""
    desk.snapshots()[0].status = "error"


@pytest.mark.parametrize(
    ("change", "is_continued"), [(lose_work_folder, True), (upgrade_mke2fs, False), (give_up, False)]
)
def test_an_unfinished_snapshot_is_continued_if_it_can_be(
    change: Callable[[Desk, pytest.MonkeyPatch], None], is_continued: bool, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_at(desk, "CompleteSnapshot", died_before())
    (pending,) = desk.snapshots()
    change(desk, monkeypatch)

    assert desk.publish() == 0, desk.text
    (snapshot,) = desk.snapshots()
    assert (snapshot.id == pending.id, snapshot.status) == (is_continued, "completed")


# https://docs.aws.amazon.com/ebs/latest/APIReference/API_PutSnapshotBlock.html
THROTTLED = refused("RequestThrottledException", 400)


def not_now(reason: str) -> Fault:
    """A ValidationException with a ValidationExceptionReason."""
    body = json.dumps({"Message": "The block cannot be written.", "Reason": reason})
    return Fault(lambda *_: (400, {"x-amzn-errortype": "ValidationException"}, body), takes_effect=False)


@pytest.mark.parametrize("fault", [THROTTLED, not_now("CONFLICTING_BLOCK_UPDATE"), not_now("WRITE_REQUEST_TIMEOUT")])
def test_a_block_is_sent_again_after_a_transient_error(fault: Fault, desk: Desk) -> None:
    with injected(Faults()) as faults:
        faults.on("PutSnapshotBlock", fault)
        assert desk.publish() == 0, desk.text
        assert faults.count("PutSnapshotBlock") == len(desk.blocks(desk.record["snapshot"])) + 1


def test_throttled_requests_are_retried_for_a_quarter_of_an_hour(desk: Desk) -> None:
    with injected(Faults().on("PutSnapshotBlock", THROTTLED, nth=None)):
        assert desk.publish() == 4
    assert 900 < desk.slept_s < 1000


def test_a_snapshot_whose_completion_was_not_answered_is_waited_for(desk: Desk) -> None:
    """It refuses a second request, and is pending for a while, in which whether it was sealed cannot be seen."""
    desk.account.slow.pending = 3
    with injected(Faults().on("CompleteSnapshot", lost(attempts=1))):
        assert desk.publish() == 0, desk.text
    assert [one.status for one in desk.snapshots()] == ["completed"]


# ---- refused


def test_another_content_needs_replace_which_leaves_nothing_of_the_old_one(desk: Desk) -> None:
    assert desk.publish() == 0
    (old,) = desk.snapshots()
    write_prepared(desk.folder, (300_000, 40_000), seed=1)

    assert desk.publish() == 2
    assert desk.publish("--replace") == 0, desk.text
    (snapshot,) = desk.snapshots()
    assert snapshot.id != old.id
    assert desk.s3()["train/000000.tar"] == (desk.folder / "train/000000.tar").read_bytes()


def damage_shard(desk: Desk) -> None:
    shard = desk.folder / "train/000000.tar"
    shard.write_bytes(b"x" + shard.read_bytes()[1:])


def name_file_outside(desk: Desk) -> None:
    manifest = desk.folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace("train/000000.tar", "../../etc/passwd"))


def add_file(desk: Desk) -> None:
    """Beside trainer.prepare's own list."""
    (desk.folder / "bad-images.txt").write_text("trainer.prepare's own\n")
    (desk.folder / "passwords.txt").write_text("secret\n")


def link_shard(desk: Desk) -> None:
    shard = desk.folder / "train/000000.tar"
    shard.rename(elsewhere := desk.folder.with_name("elsewhere.tar"))
    shard.symlink_to(elsewhere)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (damage_shard, "train/000000.tar has changed"),
        (name_file_outside, "manifest.json is damaged"),
        (add_file, "passwords.txt is no part of the data set"),
        (link_shard, "train/000000.tar is a link"),
    ],
)
def test_only_what_was_prepared_is_published(
    change: Callable[[Desk], None], named: str, desk: Desk, capsys: Capture
) -> None:
    change(desk)
    assert desk.publish() == 3
    assert named in capsys.readouterr().err
    assert (desk.s3(), desk.snapshots()) == ({}, [])


def test_a_folder_in_s3_that_launch_data_has_not_filled_stays_as_it_is(desk: Desk) -> None:
    desk.account.put(desk.account.bucket, f"data/{NAME}/train/0/0.jpg", b"a picture")

    assert desk.publish() == 2
    assert list(desk.s3()) == ["train/0/0.jpg"]


def test_a_snapshot_with_another_block_is_not_called_published(desk: Desk, capsys: Capture) -> None:
    die_at(desk, "ListSnapshotBlocks", died_before())
    (snapshot,) = desk.snapshots()
    block = ebs_backends[desk.account.id]["us-east-1"].snapshots[snapshot.id].blocks[0]
    block.block_data = bytes(len(block.block_data))

    assert desk.publish() == 3
    assert "block 0 differs" in capsys.readouterr().err
    assert desk.record["state"] == "publishing"


def test_without_mke2fs_it_can_publish_to_s3(desk: Desk, capsys: Capture) -> None:
    desk.which = lambda program: None

    assert desk.publish() == 2
    assert "apt install e2fsprogs" in capsys.readouterr().err
    assert desk.publish("--to", "s3") == 0, desk.text


def test_a_dry_run_writes_nothing_and_shows_every_price(desk: Desk) -> None:
    assert desk.publish("--dry-run=full", "--upload-mbit-s", "8") == 0

    assert desk.writes() == []
    assert not desk.folder.with_name("photos-publishing").exists()
    for words in ("StartSnapshot", "PutSnapshotBlock", "to S3", "to a snapshot", "to read it back", "a month: S3 and",
                  "70 to train and 4 to evaluate, 2 classes"):  # fmt: skip
        assert words in desk.text


# ---- images that are not prepared yet


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Four images in two classes, as trainer.prepare takes them."""
    folder = tmp_path / "raw" / "photos"
    for split in ("train", "val"):
        for kind in ("cat", "dog"):
            (folder / split / kind).mkdir(parents=True)
            (folder / split / kind / "0.jpg").write_bytes(b"an image")
    return folder


def prepared_by(commands: list[list[str]], code: int = 0) -> Callable[..., int]:
    """Stands in for trainer.prepare, which has tests of its own."""

    def run(command: list[str], env: dict[str, str]) -> int:
        commands.append(list(command))
        if code == 0:
            write_prepared(Path(command[4]))
        return code

    return run


def test_images_are_prepared_in_another_process_first(
    desk: Desk, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, target = list[list[str]](), photos.with_name("photos-prepared")
    assert desk.publish("--dry-run=full", source=photos) == 0
    assert f"$ python -m trainer.prepare {photos} {target}" in desk.text
    assert not target.exists()

    monkeypatch.setattr("launch.data.commands.shell.run", prepared_by(commands, code=3))
    assert desk.publish("--to", "s3", source=photos) == 3
    assert desk.s3() == {}

    monkeypatch.setattr("launch.data.commands.shell.run", prepared_by(commands))
    assert desk.publish("--to", "s3", "--originals", source=photos) == 0, desk.text
    assert commands[-1][1:] == ["-m", "trainer.prepare", str(photos), str(target), "--no-resize"]
    assert desk.record["state"] == "published"
    assert desk.publish("--to", "s3", source=photos) == 0  # taken as it was prepared
    assert len(commands) == 2


@pytest.mark.parametrize("suffix", [".zip", ".tar", ".tar.gz", ".tar.xz"])
def test_an_archive_gives_its_name_without_the_suffix(desk: Desk, suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"birds{suffix}").write_bytes(b"an archive")
    assert desk.type("publish", str(tmp_path / f"birds{suffix}"), "--to", "s3", "--dry-run=full") == 0, desk.text
    assert "data set birds," in desk.text


def test_images_that_were_prepared_otherwise_are_refused(desk: Desk, photos: Path, capsys: Capture) -> None:
    write_prepared(photos.with_name("photos-prepared"))  # to 256 px

    for words in (("--originals",), ("--resize", "400")):
        assert desk.publish("--to", "s3", *words, source=photos) == 2
        assert "was prepared with --resize 256" in capsys.readouterr().err
    assert desk.publish("--to", "s3", "--resize", "256", source=photos) == 0, desk.text


def test_images_that_were_added_after_preparing_are_not_left_out(desk: Desk, photos: Path, capsys: Capture) -> None:
    target = write_prepared(photos.with_name("photos-prepared"))
    manifest = json.loads((target / "manifest.json").read_text())
    manifest["source"] = {"kind": "folder", "images": 4, "bytes": 4 * len(b"an image")}
    (target / "manifest.json").write_text(json.dumps(manifest))
    assert desk.publish("--to", "s3", "--dry-run=full", source=photos) == 0, desk.text

    (photos / "train/cat/1.jpg").write_bytes(b"another")
    assert desk.publish("--to", "s3", source=photos) == 2
    assert "has 5 images of 39 bytes" in capsys.readouterr().err


def test_a_missing_folder_is_named(desk: Desk, capsys: Capture) -> None:
    assert desk.publish(source=desk.folder.with_name("nothing")) == 2
    assert "nothing: no such folder" in capsys.readouterr().err


# ---- plain folders


def test_a_plain_folder_is_published_as_it_is(desk: Desk, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    for name in ("a/b (1).txt", "a/.hidden", "\u00fc, x.json", "train/#1;2.bin"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)

    assert desk.publish("--plain", source=folder) == 0, desk.text

    assert "--script train.py -- --data-dir '{data_dir}'" in desk.text
    files = files_in(folder)
    assert {name: desk.s3().pop(name) for name in files} == files
    assert desk.s3().keys() - files.keys() == {"manifest.json", "published.json"}
    image = volume(desk, tmp_path / "volume")
    for name, content in files.items():
        assert content_in(image, name) == content
    assert desk.type("list") == 0
    assert "plain" in desk.text
    since = len(desk.account.requests)
    assert desk.publish("--plain", source=folder) == 0
    assert desk.writes(since) == []


@pytest.mark.parametrize(
    ("words", "files", "named"),
    [
        (["--originals"], {"a": ""}, "--originals"),
        ([], {}, "has no files"),
        ([], {"manifest.json": "{}"}, "give it another"),
        ([], {'a"b': ""}, "quotation marks"),
    ],
)
def test_an_impossible_plain_folder_is_refused(
    words: list[str], files: dict[str, str], named: str, desk: Desk, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "texts").mkdir()
    for name, text in files.items():
        (tmp_path / "texts" / name).write_text(text)
    assert desk.publish("--plain", *words, source=tmp_path / "texts") in (2, 3)
    assert named in capsys.readouterr().err
