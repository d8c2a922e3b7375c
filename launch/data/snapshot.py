"""Write a snapshot through the EBS direct APIs, block by block and resumable, and read it back."""

import base64
import hashlib
import json
import os
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

from launch.aws.client import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.plan import Request
from launch.data.image import BLOCK, Blocks, read_block
from launch.data.pool import Pool
from launch.data.upload import Counter
from trainer.errors import DataError, not_written
from trainer.files import read_json, write_atomically

_INDEX = struct.Struct("<I")
_BLOCK = struct.Struct("<I32s")


@dataclass(frozen=True)
class Started:
    """A started snapshot, or the request for one."""

    token: str  # StartSnapshot's client token
    digest: str  # of the manifest
    region: str
    started: str  # as in its tags
    snapshot: str = ""  # its id; empty until AWS has answered
    blocks: str = ""  # as in its tags; empty if an earlier version wrote this


@dataclass(frozen=True)
class State:
    """The state of one publication, in a folder of this machine."""

    folder: Path

    @property
    def image(self) -> Path:
        return self.folder / "data.img"

    def prepare(self) -> None:
        """Make the folder.  Raises MachineError."""
        with self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn errors of writing inside the block into MachineError."""
        try:
            yield
        except OSError as error:
            words = f"cannot write to {self.folder} ({error.strerror}); give another folder with --work-dir."
            raise not_written(error, words) from error

    # ---- the blocks of the image

    def blocks(self, digest: str) -> Blocks | None:
        """The blocks of the image, if it is complete and has this content."""
        try:
            stored = (self.folder / "blocks").read_bytes()
        except OSError:
            return None
        if not self.image.is_file() or stored[:32] != bytes.fromhex(digest):
            return None
        return Blocks(dict(_BLOCK.iter_unpack(stored[32:])))

    def keep_blocks(self, digest: str, blocks: Blocks) -> None:
        packed = b"".join(_BLOCK.pack(index, sha256) for index, sha256 in sorted(blocks.digests.items()))
        with self._writing():
            write_atomically(self.folder / "blocks", bytes.fromhex(digest) + packed)

    # ---- the snapshot

    def begin(self, digest: str, region: str, started: str, blocks: str) -> Started:
        """The started snapshot, or the token for a new one, which is stored before AWS gets it."""
        if (known := self.begun()) and (known.digest, known.region) == (digest, region):
            return known
        fresh = Started(uuid.uuid4().hex, digest, region, started, blocks=blocks)
        self.keep(fresh)
        return fresh

    def begun(self) -> Started | None:
        try:
            return Started(**read_json(self.folder / "snapshot.json"))
        except (OSError, ValueError, TypeError):
            return None

    def keep(self, started: Started) -> None:
        with self._writing():
            write_atomically(self.folder / "snapshot.json", json.dumps(asdict(started), indent=1) + "\n")

    def answered(self, started: Started, snapshot: str) -> Started:
        known = replace(started, snapshot=snapshot)
        self.keep(known)
        return known

    def forget_snapshot(self) -> None:
        """Forget the snapshot, so that the next one gets another token."""
        (self.folder / "snapshot.json").unlink(missing_ok=True)

    # ---- which blocks are in it

    def _journal(self, snapshot: str) -> Path:
        return self.folder / f"{snapshot}.put"

    def put(self, snapshot: str) -> set[int]:
        """The indexes of the blocks that AWS has stored."""
        try:
            stored = self._journal(snapshot).read_bytes()
        except OSError:
            return set()
        whole = len(stored) - len(stored) % _INDEX.size  # the last index may be incomplete after a crash
        return {index for (index,) in _INDEX.iter_unpack(stored[:whole])}

    def record_put(self, snapshot: str, index: int) -> None:
        """Record a stored block by one short append, which is atomic if the process is killed."""
        with self._writing(), self._journal(snapshot).open("ab", buffering=0) as file:
            file.write(_INDEX.pack(index))

    # ---- the end

    def clear(self) -> None:
        """Remove the folder with everything that publishing has written there, and nothing else."""
        if not self.folder.is_dir():
            return
        for name in ("data.img", "data.partial", "data.debugfs", "blocks", "snapshot.json"):
            (self.folder / name).unlink(missing_ok=True)
        for journal in self.folder.glob("snap-*.put"):
            journal.unlink()
        if not any(self.folder.iterdir()):
            self.folder.rmdir()


# AWS cancels a snapshot without new blocks after this time: overnight, for a closed laptop.  10 to 4,320 minutes.
TIMEOUT_MIN = 1440
# A new snapshot is eventually consistent.  AWS's own tool, coldsnap, retries for two minutes.
NOT_YET = ("ResourceNotFoundException",)
SEALED = "ValidationException"
LOOK_EVERY_S, COMPLETING_S, SEALING_S = 10.0, 3600.0, 300.0
PAGE, SAMPLE = 1000, 100
READINGS = 2  # a block that arrives damaged is read again, as AWS advises

Progress = Callable[[int, int], None]  # done and total, in bytes


@dataclass(frozen=True)
class Writer:
    """Writes the blocks of an image into a snapshot."""

    pool: Pool
    state: State
    progress: Progress

    def put_all(self, snapshot: str, blocks: Blocks) -> None:
        """Write the blocks that AWS does not have yet."""
        done = self.state.put(snapshot) & blocks.digests.keys()
        missing = [index for index in sorted(blocks.digests) if index not in done]
        counter = Counter(len(blocks.digests) * BLOCK, self.progress, done=len(done) * BLOCK)
        lock = Lock()

        def put(index: int) -> None:
            self._put(file, snapshot, index, blocks.digests[index])
            with lock:
                self.state.record_put(snapshot, index)
            counter(BLOCK)

        with _opened(self.state.image) as file:
            self.pool.each(missing, put)

    def _put(self, file: int, snapshot: str, index: int, digest: bytes) -> None:
        block = read_block(file, index)
        if hashlib.sha256(block).digest() != digest:
            raise DataError(f"{self.state.image} has changed since it was made; delete it, and run the command again.")
        params = {
            "SnapshotId": snapshot,
            "BlockIndex": index,
            "BlockData": block,
            "DataLength": BLOCK,
            "Checksum": base64.b64encode(digest).decode(),
            "ChecksumAlgorithm": "SHA256",
        }
        self.pool.call("ebs", "PutSnapshotBlock", params, NOT_YET)


@contextmanager
def _opened(image: Path) -> Iterator[int]:
    file = os.open(image, os.O_RDONLY)
    try:
        yield file
    finally:
        os.close(file)


def start_request(
    started: Started, gib: int, name: str, tags: Sequence[Mapping[str, str]], kms_key: str | None
) -> Request:
    """https://docs.aws.amazon.com/ebs/latest/APIReference/API_StartSnapshot.html"""
    params: dict[str, Any] = {
        "VolumeSize": gib,
        "Description": f"data set {name}, of launch.data",
        "Tags": list(tags),
        "ClientToken": started.token,
        "Encrypted": True,
        "Timeout": TIMEOUT_MIN,
    }
    if kms_key:
        params["KmsKeyArn"] = kms_key
    return Request("ebs", "StartSnapshot", params, "begin the snapshot", name="snapshot")


def complete_request(snapshot: str, blocks: Blocks) -> Request:
    """https://docs.aws.amazon.com/ebs/latest/APIReference/API_CompleteSnapshot.html"""
    params = {
        "SnapshotId": snapshot,
        "ChangedBlocksCount": len(blocks.digests),
        "Checksum": base64.b64encode(blocks.aggregate).decode(),
        "ChecksumAlgorithm": "SHA256",
        "ChecksumAggregationMethod": "LINEAR",
    }
    return Request("ebs", "CompleteSnapshot", params, "complete the snapshot")


def seal(pool: Pool, aws: Aws, clock: Clock, snapshot: str, blocks: Blocks) -> None:
    """Complete the snapshot; an earlier request with a lost answer may already have done so.

    It then is pending for some minutes and refuses a second request, so success shows only at their end.
    """
    request = complete_request(snapshot, blocks)
    try:
        pool.call("ebs", request.operation, request.params, NOT_YET)
    except AwsError as error:
        if error.aws_code != SEALED or not _completes(aws, clock, snapshot):
            raise


def _completes(aws: Aws, clock: Clock, snapshot: str) -> bool:
    """Whether a pending snapshot is completed within SEALING_S."""
    give_up = clock.now() + SEALING_S
    while (state := state_of(aws, snapshot)) == "pending" and clock.now() < give_up:
        clock.sleep(LOOK_EVERY_S)
    return state == "completed"


def delete_snapshot(pool: Pool, name: str) -> None:
    """Delete a snapshot, if it still exists."""
    try:
        pool.call("ec2", "DeleteSnapshot", {"SnapshotId": name})
    except AwsError as error:
        if error.aws_code != "InvalidSnapshot.NotFound":
            raise


def state_of(aws: Aws, snapshot: str) -> str:
    """EC2's state: pending, completed or error; "" if there is no such snapshot, or not yet."""
    try:
        rows = aws.call("ec2", "DescribeSnapshots", {"SnapshotIds": [snapshot]})["Snapshots"]
    except AwsError as error:
        if error.aws_code == "InvalidSnapshot.NotFound":
            return ""
        raise
    return str(rows[0]["State"]) if rows else ""


def wait_until_completed(aws: Aws, clock: Clock, snapshot: str) -> None:
    """Wait until volumes can be made from it.  Raises AwsError if it fails, or takes an hour."""
    give_up = clock.now() + COMPLETING_S
    while (state := state_of(aws, snapshot)) != "completed":
        if state == "error":
            raise AwsError(
                f"AWS could not complete {snapshot}; run the same command again: it begins another.", "error"
            )
        if clock.now() > give_up:
            raise AwsError(
                f"{snapshot} is not completed after an hour; run the same command again to continue.", "pending"
            )
        clock.sleep(LOOK_EVERY_S)


def compare(pool: Pool, snapshot: str, blocks: Blocks, how: str, progress: Progress) -> int:
    """Read the snapshot back and compare it with the image; return the number of blocks read.

    Raises DataError if they differ.  how: all, or sample.
    """
    tokens = _tokens(pool, snapshot)
    if tokens.keys() != blocks.digests.keys():
        extra, missing = tokens.keys() - blocks.digests.keys(), blocks.digests.keys() - tokens.keys()
        raise _differs(snapshot, f"{len(missing)} blocks are missing and {len(extra)} are too many")
    chosen = sorted(tokens)
    if how == "sample":
        chosen = chosen[:: max(1, len(chosen) // SAMPLE)]
    counter = Counter(len(chosen) * BLOCK, progress)

    def read(index: int) -> None:
        asked = {"SnapshotId": snapshot, "BlockIndex": index, "BlockToken": tokens[index]}
        if not any(_digest(pool, asked) == blocks.digests[index] for _ in range(READINGS)):
            raise _differs(snapshot, f"block {index} differs")
        counter(BLOCK)

    pool.each(chosen, read)
    return len(chosen)


def _digest(pool: Pool, asked: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(pool.call("ebs", "GetSnapshotBlock", asked)["BlockData"].read()).digest()


def _tokens(pool: Pool, snapshot: str) -> dict[int, str]:
    """The tokens of all blocks by index; they are valid for seven days."""
    tokens, asked = dict[int, str](), {"SnapshotId": snapshot, "MaxResults": PAGE}
    while True:
        # A page may be empty and have a next one.
        page = pool.call("ebs", "ListSnapshotBlocks", asked, NOT_YET)
        tokens |= {int(block["BlockIndex"]): str(block["BlockToken"]) for block in page.get("Blocks", ())}
        if not page.get("NextToken"):
            return tokens
        asked = {"SnapshotId": snapshot, "MaxResults": PAGE, "NextToken": page["NextToken"]}


def _differs(snapshot: str, how: str) -> DataError:
    return DataError(f"{snapshot} is not what was written: {how}; delete it (launch.data delete), and publish again.")
