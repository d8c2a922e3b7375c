"""What is left to publish, and the plan for it, from facts.  Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from launch.aws.names import TIME
from launch.aws.published import DIGEST_TAG, tags
from launch.core.manifest import MANIFEST, RECORD, Content
from launch.core.plan import Fact, FromAnswer, Plan, Request
from launch.data.costs import Amounts, compare, rates, work_of
from launch.data.image import BLOCK, volume_gib
from launch.data.lookup import COMPLETED, ERROR, PENDING, Facts, Snapshot, place_of
from launch.data.options import PublishOptions
from launch.data.prepared import File, Prepared
from launch.data.snapshot import TIMEOUT_MIN
from launch.data.upload import Place
from trainer.errors import SettingsError, TrainerError

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


# ---- the plans


def plan_publish(
    options: PublishOptions, name: str, prepared: Prepared, facts: Facts, now: datetime, vcpus: int = 1
) -> Plan[Publication]:
    """The plan for a prepared data set.  vcpus: of this machine."""
    publication = publication_of(options, name, prepared, facts)
    work = work_of(prepared.bytes, len(prepared.files), are_archives=False, is_prepared=True, resized=False)
    return Plan(
        title=f"data set {name}, in {facts.region}",
        payload=publication,
        facts=facts_of(publication, facts),
        steps=steps(options, publication, facts, now),
        rates=(
            *rates(amounts(options, publication), options.upload_mbit_s),
            *(() if is_done(publication, facts) else compare(options, work, vcpus, is_local=True).rates),
        ),
        warnings=_warnings(facts),
        problems=(*facts.problems, *_problems(options, publication, facts)),
        later=later(options, publication),
    )


def _problems(options: PublishOptions, publication: Publication, facts: Facts) -> list[TrainerError]:
    record, digest = facts.record, publication.prepared.digest
    others = record is not None and record.get("digest") != digest
    if record is None and facts.there:
        words = f"{publication.place.uri} holds files that launch.data did not publish; choose another --name."
        return [SettingsError(words)]
    if not others and not publication.older:
        return []
    if not options.replace:
        words = (
            f"{publication.name} is already published with different content; choose another --name, or add --replace."
        )
        return [SettingsError(words)]
    if facts.users:
        jobs = ", ".join(facts.users)
        return [
            SettingsError(f"{publication.name} is in use by {jobs}; replace it once they have ended, or stop them.")
        ]
    return []


def _warnings(facts: Facts) -> tuple[str, ...]:
    named = [one.id for one in facts.by_hand]
    if not named:
        return ()
    words = f"{', '.join(named)} has this data set's tag and was not made by launch.data; it stays as it is."
    return (f"{words}  A job takes the newest snapshot with the tag.",)


def plan_unprepared(
    options: PublishOptions, name: str, source: Path, target: Path, size: tuple[int, int], region: str, vcpus: int = 1
) -> Plan[None]:
    """The plan for images that are not prepared yet: the command, and an upper bound of the cost."""
    files, stored = size
    work = work_of(stored, files, are_archives=files < 10, is_prepared=False, resized=not options.originals)
    content = Content(0, 0, stored, 0)
    prepared = Prepared(target, name, content, b"{}", (File("shards", stored, ""),))
    publication = publication_of(options, name, prepared, Facts(region))
    return Plan(
        title=f"data set {name}, in {region}",
        payload=None,
        facts=(
            Fact("source", str(source), f"{source}: {files:,} files, {stored / 1e9:,.2f} GB"),
            Fact("prepared", str(target), f"{target}: not there yet; at most as large"),
        ),
        command=prepare_command(options, source, target, "python"),
        rates=(
            *rates(amounts(options, publication), options.upload_mbit_s),
            *compare(options, work, vcpus, is_local=True).rates,
        ),
        warnings=("the requests are planned once the images are prepared; sizes are those of the source, at most.",),
    )


def prepare_command(options: PublishOptions, source: Path, target: Path, *python: str) -> tuple[str, ...]:
    """The command of trainer.prepare.  python: the interpreter's words, see launch.core.shell.interpreter()."""
    resize = ("--resize", str(options.resize)) if options.resize else ()
    whole = ("--no-resize",) if options.originals else ()
    return (*python, "-m", "trainer.prepare", str(source), str(target), *resize, *whole)


def facts_of(publication: Publication, facts: Facts) -> tuple[Fact, ...]:
    """The plan's facts about the data set, in S3 and as a snapshot."""
    prepared, content = publication.prepared, publication.prepared.content
    account = facts.account or f"not looked up; {SOME_ACCOUNT} stands in for it"
    limited = f", shorter side at most {content.px} px" if content.px else ""
    images = (
        "none: a plain folder"
        if content.is_plain
        else f"{content.train:,} to train and {content.val:,} to evaluate, {content.classes:,} classes{limited}"
    )
    return (
        Fact("account", facts.account or None, account),
        Fact("folder", str(prepared.folder)),
        Fact("images", asdict(content), images),
        Fact("bytes", prepared.bytes, f"{prepared.bytes / 1e9:,.2f} GB in {len(prepared.files)} files", "size"),
        Fact("digest", prepared.digest, prepared.digest[:16]),
        Fact("s3", publication.place.uri, _s3_words(publication), "in S3"),
        Fact("snapshot", publication.finished.id if publication.finished else None, _snapshot_words(publication)),
    )


def _s3_words(publication: Publication) -> str:
    if not publication.puts_manifest:
        return "not asked for; only the record of the snapshot"
    count, uri = len(publication.uploads), publication.place.uri
    return f"{uri}: {count} of {len(publication.prepared.files)} files to upload" if count else f"{uri}: all there"


def _snapshot_words(publication: Publication) -> str:
    if publication.finished:
        words = "" if publication.is_verified else ", to be compared"
        return f"{publication.finished.id}: completed{words}"
    if publication.pending:
        return f"{publication.pending.id}: begun; continues"
    return f"a new one, {publication.gib} GiB, encrypted"


def amounts(options: PublishOptions, publication: Publication) -> Amounts:
    """The amounts of data that are stored, uploaded and read back, for their price."""
    prepared, to_snapshot = publication.prepared, options.to != "s3"
    blocks = -(-sum(-(-file.bytes // 4096) * 4096 for file in prepared.files) // BLOCK) + 8
    parts = sum(max(1, -(-file.bytes // (16 * 2**20))) + 2 for file in publication.uploads)
    left = blocks if to_snapshot and not publication.finished else 0
    reads = (
        0 if publication.is_verified or not to_snapshot else {"all": blocks, "sample": 100, "none": 0}[options.verify]
    )
    return Amounts(
        stored=prepared.bytes,
        upload=sum(file.bytes for file in publication.uploads),
        requests=parts,
        blocks=left,
        read_back=min(blocks, reads),
        in_s3=options.to != "snapshot",
        in_snapshot=to_snapshot,
    )


def plan_removal(name: str, facts: Facts, reports: Sequence[Mapping[str, str]] = ()) -> Plan[None]:
    """Plan the removal: the manifest first, so that no job begins to read, and the record last, for retries.

    reports: objects that an instance which published it has left.
    """
    place = place_of(name, facts.account or SOME_ACCOUNT, facts.region)
    ours, left = facts.ours, facts.by_hand
    objects = sorted(facts.there) if facts.record else []
    size = sum(facts.there[name] for name in objects)
    return Plan(
        title=f"delete data set {name}, in {facts.region}",
        payload=None,
        facts=(
            Fact("snapshots", [one.id for one in ours], ", ".join(one.id for one in ours) or "none"),
            Fact("objects", len(objects), f"{len(objects)} in {place.uri}, {size / 1e9:,.2f} GB"),
        ),
        steps=_removal_steps(place, facts, ours, objects, reports),
        warnings=tuple(f"{one.id} stays: it was made by hand (no tag {DIGEST_TAG})." for one in left),
        problems=(*facts.problems, *_removal_problems(name, place.uri, facts, ours)),
    )


def _removal_steps(
    place: Place, facts: Facts, ours: Sequence[Snapshot], objects: Sequence[str], reports: Sequence[Mapping[str, str]]
) -> tuple[Request, ...]:
    gone = ("InvalidSnapshot.NotFound",)
    snapshots = [Request("ec2", "DeleteSnapshot", {"SnapshotId": one.id}, f"delete {one.id}", gone) for one in ours]
    uploads = [
        Request("s3", "AbortMultipartUpload", place.begun(key, upload), "give up an upload", ("NoSuchUpload",))
        for key, upload in facts.open_uploads
    ]
    known = frozenset(objects)
    return (
        *_deletes(place, known & {MANIFEST}),
        *snapshots,
        *uploads,
        *_deletes(place, known - {MANIFEST, RECORD}),
        *(Request("s3", "DeleteObject", one, f"delete {one['Key']}, of its publication") for one in reports),
        *_deletes(place, known & {RECORD}),
    )


def _deletes(place: Place, names: Iterable[str]) -> list[Request]:
    return [Request("s3", "DeleteObject", place.of(name), f"delete {place.uri}/{name}") for name in sorted(names)]


def _removal_problems(name: str, uri: str, facts: Facts, ours: Sequence[Snapshot]) -> list[TrainerError]:
    if facts.users:
        words = f"{name} is in use by {', '.join(facts.users)}; delete it once they have ended, or stop them."
        return [SettingsError(words)]
    if facts.record is None and facts.there:
        return [SettingsError(f"launch.data did not publish what is in {uri}; delete that by hand: aws s3 rm.")]
    if not ours and facts.record is None and not facts.problems:
        return [SettingsError(f"there is no data set {name} in {facts.region}; see python -m launch.data list.")]
    return []
