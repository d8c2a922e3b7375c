"""What is left to publish, and the requests for it.  Pure."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from launch.aws.names import TIME
from launch.aws.published import tags
from launch.core.manifest import MANIFEST, RECORD
from launch.core.plan import FromAnswer, Request
from launch.data.image import BLOCK, volume_gib
from launch.data.lookup import COMPLETED, ERROR, PENDING, Facts, Snapshot, place_of
from launch.data.options import PublishOptions
from launch.data.prepared import File, Prepared
from launch.data.snapshot import TIMEOUT_MIN
from launch.data.upload import Place

SOME_ACCOUNT = "123456789012"  # of a plan that is made without one
VERIFIED = ("none", "sample", "all")


@dataclass(frozen=True)
class Publication:
    """What performing the plan needs."""

    name: str
    place: Place
    prepared: Prepared
    owner: str
    uploads: tuple[File, ...] = ()  # files that S3 lacks
    extra: tuple[str, ...] = ()  # names of objects of an earlier content
    finished: Snapshot | None = None  # a completed snapshot of this content
    pending: Snapshot | None = None  # an unfinished one of this content
    failed: tuple[Snapshot, ...] = ()  # those that AWS could not complete
    older: tuple[Snapshot, ...] = ()  # those of other content
    is_verified: bool = False  # whether the finished snapshot was compared
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
    """Add the files that S3 lacks, and objects that it should not have."""
    files = publication.prepared.files
    known = {file.name for file in files} | {MANIFEST, RECORD}
    return replace(
        publication,
        uploads=tuple(file for file in files if file.name not in facts.same),
        extra=tuple(sorted(facts.there.keys() - known)),
    )


def _verified(record: Mapping[str, Any]) -> str:
    """How much was compared, by an untrusted record."""
    return next((known for known in VERIFIED if record.get("verified") == known), "none")


def _with_snapshots(publication: Publication, options: PublishOptions, facts: Facts) -> Publication:
    """Add the snapshots of this name, by content and state."""
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


PUBLISHING, PUBLISHED = "publishing", "published"


def record_of(publication: Publication, state: str, now: datetime, more: Mapping[str, Any]) -> bytes:
    """published.json: what `list` and `show` read, and the mark that the folder is launch.data's."""
    prepared = publication.prepared
    content: Mapping[str, Any] = {
        "name": publication.name,
        "state": state,
        "digest": prepared.digest,
        "content": asdict(prepared.content),
        "changed": now.strftime(TIME),
        **more,
        "manifest": json.loads(prepared.manifest),
    }
    return (json.dumps(content, indent=1) + "\n").encode()


def put_record(publication: Publication, state: str, now: datetime, more: Mapping[str, Any]) -> Request:
    body = record_of(publication, state, now, more)
    params = {**publication.place.of(RECORD), "Body": body, "ContentType": "application/json"}
    words = {PUBLISHING: "note that it is being published", PUBLISHED: "note that it is published, and verified"}
    return Request("s3", "PutObject", params, words[state])


def steps(options: PublishOptions, publication: Publication, facts: Facts, now: datetime) -> tuple[Request, ...]:
    """The first requests, which do not depend on the files' content; none if everything is published."""
    if is_done(publication, facts):
        return ()
    made = [put_record(publication, PUBLISHING, now, {})]
    if options.replace and publication.extra + publication.older:
        made.append(Request("s3", "DeleteObject", publication.place.of(MANIFEST), "take the old content out of use"))
    for key, upload in facts.open_uploads:
        given_up, gone = publication.place.begun(key, upload), ("NoSuchUpload",)
        made.append(Request("s3", "AbortMultipartUpload", given_up, "give up an upload that was interrupted", gone))
    return tuple(made)


def is_done(publication: Publication, facts: Facts) -> bool:
    """Whether everything is published, and the record says so."""
    record = facts.record or {}
    is_left = (publication.uploads, publication.extra, publication.older, publication.failed, facts.open_uploads)
    return (
        (record.get("state"), record.get("digest")) == (PUBLISHED, publication.prepared.digest)
        and not any(is_left)
        and (MANIFEST in facts.there or not publication.puts_manifest)
        and (publication.is_verified or not publication.wants_snapshot)
    )


def later(options: PublishOptions, publication: Publication) -> tuple[tuple[str, tuple[Request, ...]], ...]:
    """The requests that depend on the files' content, one of each kind."""
    kinds = list[tuple[str, tuple[Request, ...]]]()
    if publication.uploads:
        kinds.append((f"for each of {len(publication.uploads)} files:", _uploads(publication)))
    if publication.puts_manifest:
        body = {**publication.place.of(MANIFEST), "Body": publication.prepared.manifest}
        kinds.append(("then:", (Request("s3", "PutObject", body, "the manifest, which makes it complete"),)))
    if options.to != "s3" and not publication.finished:
        kinds += _snapshot_requests(options, publication)
    if options.to != "s3" and options.verify != "none" and not publication.is_verified:
        block = {"SnapshotId": "<snapshot>", "BlockIndex": "<index>", "BlockToken": "<its token>"}
        read = (
            Request("ebs", "ListSnapshotBlocks", {"SnapshotId": "<snapshot>"}, "list its blocks"),
            Request("ebs", "GetSnapshotBlock", block, "read each back, and compare it"),
        )
        kinds.append(("once it is completed:", read))
    return tuple(kinds)


def _uploads(publication: Publication) -> tuple[Request, ...]:
    place = publication.place.of("<file>")
    part = {**place, "PartNumber": "<number>", "ChecksumAlgorithm": "SHA256", "ChecksumSHA256": "<of the part>"}
    return (
        Request("s3", "CreateMultipartUpload", {**place, "ChecksumAlgorithm": "SHA256"}, "begin, above 16 MiB"),
        Request("s3", "UploadPart", part, "16 MiB, which S3 checks"),
        Request("s3", "CompleteMultipartUpload", {**place, "UploadId": "<its id>"}, "put it together"),
    )


def _snapshot_requests(options: PublishOptions, publication: Publication) -> list[tuple[str, tuple[Request, ...]]]:
    start: dict[str, Any] = {"VolumeSize": publication.gib, "Encrypted": True, "Timeout": TIMEOUT_MIN}
    if options.kms_key:
        start["KmsKeyArn"] = options.kms_key
    snapshot = publication.pending.id if publication.pending else FromAnswer("snapshot", "SnapshotId")
    put = {"SnapshotId": snapshot, "DataLength": BLOCK, "ChecksumAlgorithm": "SHA256", "Checksum": "<of the block>"}
    begin = () if publication.pending else (Request("ebs", "StartSnapshot", start, "begin the snapshot"),)
    requests = (
        *begin,
        Request("ebs", "PutSnapshotBlock", put, "each block of the file system that is written"),
        Request("ebs", "CompleteSnapshot", {"SnapshotId": snapshot}, "complete it, with the digest of all blocks"),
    )
    return [("once the file system is made, with mke2fs:", requests)]
