"""What this machine remembers of an unfinished snapshot, in its work folder: a pending snapshot cannot be read.

https://docs.aws.amazon.com/ebs/latest/userguide/ebsapi-faq.html: it can be accessed once it is completed.  Everything
else that has been done is looked up in AWS.
"""

import json
import struct
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from launch.data.image import Blocks
from trainer.errors import not_written
from trainer.files import read_json, read_regular, write_atomically

_INDEX = struct.Struct("<I")
_BLOCK = struct.Struct("<I32s")


@dataclass(frozen=True)
class Started:
    """token: StartSnapshot's; snapshot: its id, empty until AWS has answered; started: as in its tags.

    digest: of the manifest; region: where; blocks: as in its tags, empty in what an earlier version has written.
    """

    token: str
    digest: str
    region: str
    started: str
    snapshot: str = ""
    blocks: str = ""


@dataclass(frozen=True)
class State:
    """The files of one publication in a folder of this machine."""

    folder: Path

    @property
    def image(self) -> Path:
        return self.folder / "data.img"

    def prepare(self) -> None:
        """Makes the folder.  Raises MachineError."""
        with self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Raises MachineError for what cannot be written inside."""
        try:
            yield
        except OSError as error:
            words = f"cannot write to {self.folder} ({error.strerror}); give another folder with --work-dir."
            raise not_written(error, words) from error

    # ---- the blocks of the image

    def blocks(self, digest: str) -> Blocks | None:
        """Those of the image, if it is whole and has this content."""
        try:
            stored = read_regular(self.folder / "blocks")
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
        """The snapshot that was begun, or the token for a new one, which is on the disk before AWS gets it."""
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
        """The next one gets a token of its own."""
        (self.folder / "snapshot.json").unlink(missing_ok=True)

    # ---- which blocks are in it

    def _journal(self, snapshot: str) -> Path:
        return self.folder / f"{snapshot}.put"

    def put(self, snapshot: str) -> set[int]:
        """The indexes of the blocks that AWS has taken."""
        try:
            stored = read_regular(self._journal(snapshot))
        except OSError:
            return set()
        whole = len(stored) - len(stored) % _INDEX.size  # the machine may have stopped while it wrote
        return {index for (index,) in _INDEX.iter_unpack(stored[:whole])}

    def note_put(self, snapshot: str, index: int) -> None:
        """One short append, which is whole or not there when the process is killed."""
        with self._writing(), self._journal(snapshot).open("ab", buffering=0) as file:
            file.write(_INDEX.pack(index))

    # ---- the end

    def clear(self) -> None:
        """Removes the folder with everything that publishing has put there, and nothing else."""
        if not self.folder.is_dir():
            return
        for name in ("data.img", "data.partial", "data.debugfs", "blocks", "snapshot.json"):
            (self.folder / name).unlink(missing_ok=True)
        for journal in self.folder.glob("snap-*.put"):
            journal.unlink()
        if not any(self.folder.iterdir()):
            self.folder.rmdir()
