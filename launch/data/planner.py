"""The plan that publishes a data set, from facts.  Pure."""

from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path

from launch.core.manifest import Content
from launch.core.plan import Fact, Plan
from launch.core.price import CATALOGS
from launch.data import prices
from launch.data.image import BLOCK
from launch.data.lookup import Facts
from launch.data.near.work import Work, here, types_for, ways_of, work_of
from launch.data.options import PublishOptions
from launch.data.prepared import File, Prepared
from launch.data.prices import Amounts
from launch.data.requests import SOME_ACCOUNT, Publication, is_done, later, publication_of, steps
from trainer.errors import SettingsError, TrainerError


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
            *prices.rates(amounts(options, publication), options.upload_mbit_s),
            *(() if is_done(publication, facts) else _both_ways(options, work, vcpus)),
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


def _both_ways(options: PublishOptions, work: Work, vcpus: int) -> tuple[Fact, ...]:
    """Time and cost of publishing from here, and by an instance once the data are in S3."""
    mine = here(vcpus, options.upload_mbit_s, options.connections)
    asked = replace(work, to_s3=options.to != "snapshot", to_snapshot=options.to != "s3", verify=options.verify)
    return ways_of(asked, mine, CATALOGS, types_for(options.instance_type), is_local=True).rates


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
            *prices.rates(amounts(options, publication), options.upload_mbit_s),
            *_both_ways(options, work, vcpus),
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
