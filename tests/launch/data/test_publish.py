"""launch.data publish: what is in the account afterwards, and what a second run does."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from moto.ebs.models import ebs_backends

from launch.aws.published import content_of
from launch.data.snapshot import State
from launch.rehearse.aws.ec2 import ebs
from tests.launch.data.desk import NAME, Desk, opened, write_prepared
from tests.launch.faults import Died, Fault, Faults, died_after, died_before, injected, lost, refused


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with opened(tmp_path) as desk:
        yield desk


def test_everything_is_in_s3_and_in_an_encrypted_snapshot_that_was_read_back(desk: Desk) -> None:
    assert desk.publish() == 0, desk.text

    files = {path.relative_to(desk.folder).as_posix(): path.read_bytes() for path in desk.folder.rglob("*.*")}
    (snapshot,) = desk.snapshots()
    assert {name: content for name, content in desk.s3().items() if name != "published.json"} == files
    assert (snapshot.status, snapshot.encrypted) == ("completed", True)
    assert (desk.record["state"], desk.record["snapshot"], desk.record["verified"]) == ("published", snapshot.id, "all")
    tags = {tag["key"]: tag["value"] for tag in snapshot.get_tags()}
    content = content_of(tags)
    assert content is not None
    assert (content.train, content.val, content.bytes, content.classes, content.px) == (70, 4, 740_000, 2, 256)


@pytest.mark.parametrize("verified", ["sure", None, []], ids=str)
def test_how_much_was_compared_by_somebodys_word_alone_is_nothing(verified: object, desk: Desk) -> None:
    assert desk.publish() == 0, desk.text
    desk.account.put_json(f"data/{NAME}/published.json", desk.record | {"verified": verified})

    assert desk.publish() == 0, desk.text


@pytest.mark.parametrize(
    "rest",
    [
        "zeros",
        pytest.param("no zeros", marks=pytest.mark.slow("a published volume needs nothing that was not written")),
    ],
)
def test_a_volume_made_from_it_has_the_same_files(rest: str, desk: Desk, tmp_path: Path) -> None:
    """What was not written need not read as zeros in a volume made from an encrypted snapshot."""
    assert desk.publish("--to", "snapshot") == 0, desk.text
    (snapshot,) = desk.snapshots()

    image = tmp_path / "volume"
    with image.open("wb") as file:
        written = ebs_backends[desk.account.id]["us-east-1"].snapshots[snapshot.id]
        ebs.write_volume(written, file, fills=rest == "no zeros")
    checked = subprocess.run(["/usr/sbin/e2fsck", "-fn", image], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for path in desk.folder.rglob("*.*"):
        name = path.relative_to(desk.folder).as_posix()
        command = ["/usr/sbin/debugfs", "-R", f"cat /{name}", str(image)]
        assert subprocess.run(command, capture_output=True, check=True).stdout == path.read_bytes()


def test_publishing_again_writes_nothing(desk: Desk) -> None:
    assert desk.publish() == 0
    before = len(desk.account.requests)

    assert desk.publish() == 0
    writes = [
        call
        for call in desk.account.requests[before:]
        if not call.operation.startswith(("Get", "Head", "List", "Describe"))
    ]
    assert writes == []
    assert f"{NAME} is already published and unchanged." in desk.said


# ---- interrupted


def test_a_killed_publication_goes_on_where_it_was(desk: Desk) -> None:
    """Blocks that AWS has taken are not sent again, and the bytes are the same."""
    with injected(Faults()) as faults:
        faults.on("PutSnapshotBlock", died_after(), nth=2)
        with pytest.raises(Died):
            desk.publish()
    (pending,) = desk.snapshots()
    before = len(desk.account.requests)

    assert desk.publish() == 0, desk.text
    (snapshot,) = desk.snapshots()
    sent = [
        call.params["BlockIndex"] for call in desk.account.requests[before:] if call.operation == "PutSnapshotBlock"
    ]
    # The second block was taken, and its answer never came: it is sent again.
    assert (snapshot.id, len(sent)) == (pending.id, len(desk.blocks(snapshot.id)) - 1)


def test_a_snapshot_that_aws_has_given_up_is_begun_anew(desk: Desk) -> None:
    with injected(Faults()) as faults:
        faults.on("PutSnapshotBlock", died_after(), nth=2)
        with pytest.raises(Died):
            desk.publish()
    (given_up,) = desk.snapshots()
    given_up.status = "error"  # after Timeout minutes without a block

    assert desk.publish() == 0, desk.text
    (snapshot,) = desk.snapshots()
    assert snapshot.id != given_up.id
    assert snapshot.status == "completed"


def test_a_file_system_that_came_out_otherwise_gets_another_snapshot(desk: Desk) -> None:
    """As after an upgrade of mke2fs: with blocks of both, the snapshot would be damaged, or never be completed."""
    with injected(Faults()) as faults:
        faults.on("CompleteSnapshot", died_before())
        with pytest.raises(Died):
            desk.publish()
    (pending,) = desk.snapshots()
    work = desk.folder.with_name("photos-publishing")
    (work / "blocks").unlink()
    (work / "data.img").unlink()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("launch.data.image._MADE", "1700000001")  # the time in all inodes
        assert desk.publish() == 0, desk.text
    (snapshot,) = desk.snapshots()
    assert snapshot.id != pending.id


def test_without_its_work_folder_a_pending_snapshot_is_still_gone_on_with(desk: Desk) -> None:
    with injected(Faults()) as faults:
        faults.on("CompleteSnapshot", died_before())
        with pytest.raises(Died):
            desk.publish()
    (pending,) = desk.snapshots()
    shutil.rmtree(desk.folder.with_name("photos-publishing"))

    assert desk.publish() == 0, desk.text
    assert [one.id for one in desk.snapshots()] == [pending.id]


def test_the_journal_knows_what_has_been_put(tmp_path: Path) -> None:
    state = State(tmp_path / "work")
    state.prepare()
    state.record_put("snap-1", 5)
    state.record_put("snap-1", 7)
    assert state.put("snap-1") == {5, 7}


def test_throttled_requests_are_repeated_for_a_quarter_of_an_hour(desk: Desk) -> None:
    """https://docs.aws.amazon.com/ebs/latest/APIReference/API_PutSnapshotBlock.html: RequestThrottledException."""
    with injected(Faults()) as faults:
        faults.on("PutSnapshotBlock", refused("RequestThrottledException", 400), nth=1)
        assert desk.publish() == 0, desk.text
        faults.clear()

    assert desk.type("delete", NAME, "--yes") == 0
    with injected(Faults()) as faults:
        faults.on("PutSnapshotBlock", refused("RequestThrottledException", 400), nth=None)
        assert desk.publish() == 4
    assert desk.slept_s > 900


@pytest.mark.parametrize("reason", ["CONFLICTING_BLOCK_UPDATE", "WRITE_REQUEST_TIMEOUT"])
def test_a_block_that_came_too_slowly_is_sent_again(reason: str, desk: Desk) -> None:
    """A ValidationExceptionReason of https://docs.aws.amazon.com/ebs/latest/APIReference/API_PutSnapshotBlock.html."""
    with injected(Faults()) as faults:
        faults.on("PutSnapshotBlock", not_now(reason))
        assert desk.publish() == 0, desk.text
        assert faults.count("PutSnapshotBlock") == len(desk.blocks(desk.record["snapshot"])) + 1


def not_now(reason: str) -> Fault:
    body = json.dumps({"Message": "The block cannot be written.", "Reason": reason})
    return Fault(lambda *_: (400, {"x-amzn-errortype": "ValidationException"}, body), takes_effect=False)


def test_a_snapshot_whose_completion_was_not_answered_is_waited_for(desk: Desk) -> None:
    """It takes no second request, and is pending for a while, in which whether it was sealed cannot be seen."""
    desk.account.slow.pending = 3
    with injected(Faults()) as faults:
        faults.on("CompleteSnapshot", lost(attempts=1))
        assert desk.publish() == 0, desk.text
    assert [one.status for one in desk.snapshots()] == ["completed"]


# ---- what is refused


def test_another_content_needs_replace_which_leaves_nothing_of_the_old_one(desk: Desk) -> None:
    assert desk.publish() == 0
    (old,) = desk.snapshots()
    write_prepared(desk.folder, (300_000, 40_000), seed=1)

    assert desk.publish() == 2
    assert desk.publish("--replace") == 0, desk.text
    (snapshot,) = desk.snapshots()
    assert snapshot.id != old.id
    assert desk.s3()["train/000000.tar"] == (desk.folder / "train/000000.tar").read_bytes()


def test_a_damaged_shard_never_leaves_this_machine(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    shard = desk.folder / "train/000000.tar"
    shard.write_bytes(b"x" + shard.read_bytes()[1:])

    assert desk.publish() == 3
    assert "train/000000.tar has changed since it was prepared" in capsys.readouterr().err
    assert (desk.s3(), desk.snapshots()) == ({}, [])


def test_a_manifest_cannot_name_files_outside_its_folder(desk: Desk) -> None:
    manifest = desk.folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace("train/000000.tar", "../../etc/passwd"))

    assert desk.publish() == 3
    assert desk.s3() == {}


def test_only_the_data_set_gets_into_a_snapshot(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Not what else lies in the folder; and a link would be a damaged file there."""
    (desk.folder / "bad-images.txt").write_text("trainer.prepare's own\n")
    (desk.folder / "passwords.txt").write_text("secret\n")
    assert desk.publish() == 3
    assert "passwords.txt is no part of the data set, and would be published" in capsys.readouterr().err
    (desk.folder / "passwords.txt").unlink()

    shard = desk.folder / "train/000000.tar"
    shard.rename(elsewhere := desk.folder.with_name("elsewhere.tar"))
    shard.symlink_to(elsewhere)
    assert desk.publish() == 3
    assert "train/000000.tar is a link, which leads nowhere in a snapshot" in capsys.readouterr().err
    assert (desk.s3(), desk.snapshots()) == ({}, [])
    assert desk.publish("--to", "s3") == 0, desk.text


def test_a_folder_that_somebody_else_has_filled_stays_as_it_is(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.account.put(desk.account.bucket, f"data/{NAME}/train/0/0.jpg", b"a picture")

    assert desk.publish() == 2
    assert "launch.data did not publish" in capsys.readouterr().err
    assert list(desk.s3()) == ["train/0/0.jpg"]


def test_a_snapshot_with_another_block_is_not_called_published(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    with injected(Faults()) as faults:
        faults.on("ListSnapshotBlocks", died_before())
        with pytest.raises(Died):
            desk.publish()
    (snapshot,) = desk.snapshots()
    block = ebs_backends[desk.account.id]["us-east-1"].snapshots[snapshot.id].blocks[0]
    block.block_data = bytes(len(block.block_data))

    assert desk.publish() == 3
    assert "block 0 differs" in capsys.readouterr().err
    assert desk.record["state"] == "publishing"


def test_without_mke2fs_it_says_what_to_install(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.which = lambda program: None

    assert desk.publish() == 2
    assert "apt install e2fsprogs" in capsys.readouterr().err
    assert desk.publish("--to", "s3") == 0, desk.text


# ---- the plan


def test_a_dry_run_writes_nothing_and_shows_every_price(desk: Desk) -> None:
    assert desk.publish("--dry-run", "--upload-mbit-s", "8") == 0

    assert all(call.operation.startswith(("Get", "Head", "List", "Describe")) for call in desk.account.requests)
    assert not desk.folder.with_name("photos-publishing").exists()
    for words in ("StartSnapshot", "PutSnapshotBlock", "to S3", "to a snapshot", "to read it back", "a month: S3 and"):
        assert words in desk.text
    assert "70 to train and 4 to evaluate, 2 classes, shorter side at most 256 px" in desk.text


# ---- images that are not prepared yet


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two images, as trainer.prepare takes them."""
    folder = tmp_path / "raw" / "photos"
    for split in ("train", "val"):
        (folder / split / "cat").mkdir(parents=True)
        (folder / split / "cat" / "0.jpg").write_bytes(b"an image")
    return folder


def prepared_by(commands: list[list[str]], code: int = 0) -> Callable[..., int]:
    """Stands in for trainer.prepare, which has tests of its own."""

    def run(command: list[str], env: dict[str, str]) -> int:
        commands.append(list(command))
        if code == 0:
            write_prepared(Path(command[4]))
        return code

    return run


def test_images_are_prepared_in_a_process_of_its_own_first(
    desk: Desk, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = list[list[str]]()
    monkeypatch.setattr("launch.data.commands.shell.run", prepared_by(commands))

    assert desk.publish("--to", "s3", "--originals", source=photos) == 0, desk.text
    target = str(photos.with_name("photos-prepared"))
    assert [words[1:] for words in commands] == [["-m", "trainer.prepare", str(photos), target, "--no-resize"]]
    assert desk.record["state"] == "published"
    assert desk.publish("--to", "s3", source=photos) == 0  # taken as it was prepared
    assert len(commands) == 1


@pytest.mark.parametrize("suffix", [".zip", ".tar", ".tar.gz", ".tar.xz"])
def test_an_archive_gives_its_name_without_the_suffix(desk: Desk, suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"birds{suffix}").write_bytes(b"an archive")

    assert desk.type("publish", str(tmp_path / f"birds{suffix}"), "--to", "s3", "--dry-run") == 0, desk.text

    assert "birds" in desk.text


def test_images_that_were_prepared_otherwise_are_not_published_as_if_they_were(
    desk: Desk, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_prepared(photos.with_name("photos-prepared"))  # to 256 px

    for words in (("--originals",), ("--resize", "400")):
        assert desk.publish("--to", "s3", *words, source=photos) == 2
        assert "photos-prepared was prepared with --resize 256; delete it, or give" in capsys.readouterr().err
    assert desk.publish("--to", "s3", "--resize", "256", source=photos) == 0, desk.text


def test_images_that_came_after_preparing_are_not_left_out_unsaid(
    desk: Desk, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split in ("train", "val"):  # two classes are the least
        (photos / split / "dog").mkdir()
        (photos / split / "dog" / "0.jpg").write_bytes(b"an image")
    target = write_prepared(photos.with_name("photos-prepared"))
    manifest = json.loads((target / "manifest.json").read_text())
    manifest["source"] = {"kind": "folder", "images": 4, "bytes": 4 * len(b"an image")}
    (target / "manifest.json").write_text(json.dumps(manifest))
    assert desk.publish("--to", "s3", "--dry-run", source=photos) == 0, desk.text

    (photos / "train/cat/1.jpg").write_bytes(b"another")
    assert desk.publish("--to", "s3", source=photos) == 2
    assert "has 5 images of 39 bytes, and" in capsys.readouterr().err
    assert desk.s3() == {}


def test_what_ends_preparing_ends_publishing_with_its_code(
    desk: Desk, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launch.data.commands.shell.run", prepared_by([], code=3))

    assert desk.publish("--to", "s3", source=photos) == 3
    assert desk.s3() == {}


def test_a_dry_run_of_unprepared_images_shows_the_command_and_at_most_what_it_costs(desk: Desk, photos: Path) -> None:
    assert desk.publish("--dry-run", source=photos) == 0

    assert f"$ python -m trainer.prepare {photos} {photos}-prepared" in desk.text
    assert "to a snapshot" in desk.text
    assert not photos.with_name("photos-prepared").exists()


def test_a_folder_that_is_not_there_is_named(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert desk.publish(source=desk.folder.with_name("nothing")) == 2
    assert "no such folder; give one with images" in capsys.readouterr().err


def test_a_plain_folder_is_published_as_it_is(desk: Desk, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    for name in ("a/b (1).txt", "a/.hidden", "\u00fc, x.json", "train/#1;2.bin"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)

    assert desk.publish("--plain", source=folder) == 0, desk.text

    there = desk.s3()
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {name: there[name] for name in files} == files
    assert set(there) - set(files) == {"manifest.json", "published.json"}
    assert "plain folder" in desk.text
    assert "--script train.py -- --data-dir '{data_dir}'" in desk.text
    (snapshot,) = desk.snapshots()
    image = tmp_path / "volume"
    with image.open("wb") as file:
        ebs.write_volume(ebs_backends[desk.account.id]["us-east-1"].snapshots[snapshot.id], file, fills=False)
    for name, content in files.items():
        command = ["/usr/sbin/debugfs", "-R", f'cat "/{name}"', str(image)]
        assert subprocess.run(command, capture_output=True, check=True).stdout == content
    assert desk.type("list") == 0
    assert "plain" in desk.text
    assert desk.publish("--plain", source=folder) == 0
    assert "already published and unchanged" in desk.text


@pytest.mark.parametrize(
    ("words", "files", "why"),
    [
        (["--originals"], {"a": ""}, "leave one out"),
        ([], {}, "has no files"),
        ([], {"manifest.json": "{}"}, "give it another"),
        ([], {'a"b': ""}, "quotation marks"),
    ],
)
def test_what_no_plain_folder_can_be_is_refused(
    words: list[str], files: dict[str, str], why: str, desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts").mkdir()
    for name, text in files.items():
        (tmp_path / "texts" / name).write_text(text)
    assert desk.publish("--plain", *words, source=tmp_path / "texts") in (2, 3)
    assert why in capsys.readouterr().err
