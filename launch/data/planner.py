"""Facts -> the plan that publishes a data set.  Pure."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from launch.core.names import TIME
from launch.core.plan import Fact, FromAnswer, Plan, Request
from launch.core.price import CATALOGS
from launch.core.published import MANIFEST, RECORD, Content
from launch.data import prices
from launch.data.facts import Facts
from launch.data.image import BLOCK
from launch.data.near.choose import ways_of
from launch.data.near.work import Work, here, work_of
from launch.data.options import PublishOptions
from launch.data.prepared import File, Prepared
from launch.data.prices import Amounts
from launch.data.publication import SOME_ACCOUNT, Publication, publication_of
from launch.data.snapshot import TIMEOUT_MIN
from trainer.errors import SettingsError, TrainerError

PUBLISHING, PUBLISHED = "publishing", "published"


def plan_publish(
    options: PublishOptions, name: str, prepared: Prepared, facts: Facts, now: datetime, vcpus: int = 1
) -> Plan[Publication]:
    """vcpus: of this machine."""
    publication = publication_of(options, name, prepared, facts)
    work = work_of(prepared.bytes, len(prepared.files), are_archives=False, is_prepared=True, resized=False)
    return Plan(
        title=f"data set {name}, in {facts.region}",
        payload=publication,
        facts=_shown(publication, facts),
        steps=_steps(options, publication, facts, now),
        rates=(
            *prices.rates(_amounts(options, publication), options.upload_mbit_s),
            *(() if is_done(publication, facts) else _both_ways(options, work, vcpus)),
        ),
        warnings=_warnings(facts),
        problems=(*facts.problems, *_problems(options, publication, facts)),
        later=_later(options, publication),
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
        words = f"{publication.name} is published with another content; choose another --name, or add --replace."
        return [SettingsError(words)]
    if facts.users:
        jobs = ", ".join(facts.users)
        return [
            SettingsError(f"{publication.name} is in use by {jobs}; replace it once they have ended, or stop them.")
        ]
    return []


def _warnings(facts: Facts) -> tuple[str, ...]:
    named = [one.id for one in facts.foreign]
    if not named:
        return ()
    words = f"{', '.join(named)} has this data set's tag and was not made by launch.data; it stays as it is."
    return (f"{words}  A job takes the newest snapshot with the tag.",)


def _both_ways(options: PublishOptions, work: Work, vcpus: int) -> tuple[Fact, ...]:
    """What publishing from here takes and costs, and what an instance would, once the data are in S3."""
    mine = here(vcpus, options.upload_mbit_s, options.connections)
    asked = replace(work, to_s3=options.to != "snapshot", to_snapshot=options.to != "s3", verify=options.verify)
    return ways_of(asked, mine, CATALOGS, options.instance_type, is_local=True).rates


# ---- what is shown


def _shown(publication: Publication, facts: Facts) -> tuple[Fact, ...]:
    prepared, content = publication.prepared, publication.prepared.content
    account = facts.account or f"not looked up; {SOME_ACCOUNT} stands in for it"
    limited = f", shorter side at most {content.px} px" if content.px else ""
    images = f"{content.train:,} to train and {content.val:,} to evaluate, {content.classes:,} classes{limited}"
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
        return f"{publication.pending.id}: begun, to be gone on with"
    return f"a new one, {publication.gib} GiB, encrypted"


def _amounts(options: PublishOptions, publication: Publication) -> Amounts:
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


# ---- requests


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


def _steps(options: PublishOptions, publication: Publication, facts: Facts, now: datetime) -> tuple[Request, ...]:
    if is_done(publication, facts):
        return ()
    steps = [put_record(publication, PUBLISHING, now, {})]
    if options.replace and publication.extra + publication.older:
        steps.append(Request("s3", "DeleteObject", publication.place.of(MANIFEST), "take the old content out of use"))
    for key, upload in facts.open_uploads:
        given_up, gone = publication.place.begun(key, upload), ("NoSuchUpload",)
        steps.append(Request("s3", "AbortMultipartUpload", given_up, "give up an upload that was interrupted", gone))
    return tuple(steps)


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


def _later(options: PublishOptions, publication: Publication) -> tuple[tuple[str, tuple[Request, ...]], ...]:
    """The requests that depend on what is read here, a kind each."""
    later = list[tuple[str, tuple[Request, ...]]]()
    if publication.uploads:
        later.append((f"for each of {len(publication.uploads)} files:", _uploads(publication)))
    if publication.puts_manifest:
        body = {**publication.place.of(MANIFEST), "Body": publication.prepared.manifest}
        later.append(("then:", (Request("s3", "PutObject", body, "the manifest, which makes it complete"),)))
    if options.to != "s3" and not publication.finished:
        later += _snapshot_requests(options, publication)
    if options.to != "s3" and options.verify != "none" and not publication.is_verified:
        block = {"SnapshotId": "<snapshot>", "BlockIndex": "<index>", "BlockToken": "<its token>"}
        read = (
            Request("ebs", "ListSnapshotBlocks", {"SnapshotId": "<snapshot>"}, "list its blocks"),
            Request("ebs", "GetSnapshotBlock", block, "read each back, and compare it"),
        )
        later.append(("once it is completed:", read))
    return tuple(later)


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


# ---- before it is prepared


def plan_unprepared(
    options: PublishOptions, name: str, source: Path, target: Path, size: tuple[int, int], region: str, vcpus: int = 1
) -> Plan[None]:
    """What can be said of images that are not prepared yet: the command, and at most what it costs."""
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
        command=prepare_command(options, source, target),
        rates=(
            *prices.rates(_amounts(options, publication), options.upload_mbit_s),
            *_both_ways(options, work, vcpus),
        ),
        warnings=("the requests are planned once the images are prepared; sizes are those of the source, at most.",),
    )


def prepare_command(options: PublishOptions, source: Path, target: Path, python: str = "python") -> tuple[str, ...]:
    resize = ("--resize", str(options.resize)) if options.resize else ()
    whole = ("--no-resize",) if options.originals else ()
    return (python, "-m", "trainer.prepare", str(source), str(target), *resize, *whole)
