"""What a publication comes to: of a prepared folder and of what the account has, all that is left to do.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from launch.aws.published import tags
from launch.core.manifest import MANIFEST, RECORD
from launch.data.facts import COMPLETED, ERROR, PENDING, Facts, Snapshot
from launch.data.image import volume_gib
from launch.data.lookup import place_of
from launch.data.options import PublishOptions
from launch.data.prepared import File, Prepared
from launch.data.upload import Place

SOME_ACCOUNT = "123456789012"  # of a plan that is made without one
VERIFIED = ("none", "sample", "all")


@dataclass(frozen=True)
class Publication:
    """What performing the plan needs.

    uploads: files that S3 lacks; extra: names of objects of an earlier content; finished: a completed snapshot of this
    content; pending: one that was begun; failed: some that AWS gave up; older: some of other contents.
    is_verified: whether the finished one was compared.
    """

    name: str
    place: Place
    prepared: Prepared
    owner: str
    uploads: tuple[File, ...] = ()
    extra: tuple[str, ...] = ()
    finished: Snapshot | None = None
    pending: Snapshot | None = None
    failed: tuple[Snapshot, ...] = ()
    older: tuple[Snapshot, ...] = ()
    is_verified: bool = False
    puts_manifest: bool = True
    wants_snapshot: bool = True
    gib: int = 0

    def tags(self, started: str, blocks: str) -> list[dict[str, str]]:
        prepared = self.prepared
        return tags(self.name, prepared.content, prepared.digest, blocks, self.place.bucket, self.owner, started)


def publication_of(options: PublishOptions, name: str, prepared: Prepared, facts: Facts) -> Publication:
    to_s3 = options.to != "snapshot"
    publication = Publication(
        name,
        place_of(name, facts.account or SOME_ACCOUNT, facts.region),
        prepared,
        facts.owner,
        older=tuple(one for one in facts.ours if one.digest != prepared.digest),
        puts_manifest=to_s3,
        wants_snapshot=options.to != "s3",
        gib=volume_gib([file.bytes for file in prepared.files] + [len(prepared.manifest)]),
    )
    publication = _with_objects(publication, facts) if to_s3 else publication
    return _with_snapshots(publication, options, facts) if publication.wants_snapshot else publication


def _with_objects(publication: Publication, facts: Facts) -> Publication:
    """With what S3 lacks, and what it has too much."""
    files = publication.prepared.files
    known = {file.name for file in files} | {MANIFEST, RECORD}
    return replace(
        publication,
        uploads=tuple(file for file in files if file.name not in facts.same),
        extra=tuple(sorted(facts.there.keys() - known)),
    )


def _verified(record: Mapping[str, Any]) -> str:
    """How much was compared, by a record that every publisher may write."""
    return next((known for known in VERIFIED if record.get("verified") == known), "none")


def _with_snapshots(publication: Publication, options: PublishOptions, facts: Facts) -> Publication:
    """With those of this content."""
    mine, record = facts.of_digest(publication.prepared.digest), facts.record or {}
    finished = next((one for one in mine if one.state == COMPLETED), None)
    compared = VERIFIED.index(_verified(record)) >= VERIFIED.index(options.verify)
    return replace(
        publication,
        finished=finished,
        pending=next((one for one in mine if one.state == PENDING), None),
        failed=tuple(one for one in mine if one.state == ERROR),
        is_verified=finished is not None and record.get("snapshot") == finished.id and compared,
    )
