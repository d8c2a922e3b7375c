"""What must be known before a data set is published, copied or deleted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launch.aws.names import tag_values
from launch.aws.published import BLOCKS_TAG, DIGEST_TAG, content_of, is_published
from launch.core.manifest import Content
from trainer.errors import TrainerError

PENDING, COMPLETED, ERROR = "pending", "completed", "error"


@dataclass(frozen=True)
class Snapshot:
    """A snapshot that is tagged with a data set's name.  state: EC2's; tags: all."""

    id: str
    state: str
    gib: int
    tags: Mapping[str, str]
    started: Any = None
    kms_key: str = ""

    @property
    def digest(self) -> str:
        return self.tags.get(DIGEST_TAG, "")

    @property
    def blocks(self) -> str:
        return self.tags.get(BLOCKS_TAG, "")

    @property
    def content(self) -> Content | None:
        return content_of(self.tags)

    @property
    def by_hand(self) -> bool:
        """Whether it was not made by launch.data, which then neither uses nor deletes it."""
        return not is_published(self.tags)


def snapshot_of(row: Mapping[str, Any]) -> Snapshot:
    """A row of DescribeSnapshots."""
    key = str(row.get("KmsKeyId", ""))
    return Snapshot(row["SnapshotId"], row["State"], row["VolumeSize"], tag_values(row), row.get("StartTime"), key)


@dataclass(frozen=True)
class Facts:
    """there: {name: bytes} in the data set's folder in S3; same: of them, those that are as here.

    record: published.json; snapshots: all of this name, newest first; open_uploads: key and id of those begun; users:
    jobs that read the data now; problems: why nothing can be done.
    """

    region: str
    account: str = ""
    owner: str = ""
    there: Mapping[str, int] = field(default_factory=dict)
    same: frozenset[str] = frozenset()
    record: Mapping[str, Any] | None = None
    snapshots: tuple[Snapshot, ...] = ()
    open_uploads: tuple[tuple[str, str], ...] = ()
    users: tuple[str, ...] = ()
    problems: tuple[TrainerError, ...] = ()

    @property
    def is_looked_up(self) -> bool:
        return bool(self.account)

    @property
    def ours(self) -> tuple[Snapshot, ...]:
        return tuple(one for one in self.snapshots if not one.by_hand)

    @property
    def by_hand(self) -> tuple[Snapshot, ...]:
        return tuple(one for one in self.snapshots if one.by_hand)

    def of_digest(self, digest: str) -> tuple[Snapshot, ...]:
        """launch.data's own snapshots of this content."""
        return tuple(one for one in self.ours if one.digest == digest)
