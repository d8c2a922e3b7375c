"""What a plan to publish shows, and what it prices.  Pure."""

from dataclasses import asdict

from launch.core.plan import Fact
from launch.data.facts import Facts
from launch.data.image import BLOCK
from launch.data.options import PublishOptions
from launch.data.prices import Amounts
from launch.data.publication import SOME_ACCOUNT, Publication


def facts_of(publication: Publication, facts: Facts) -> tuple[Fact, ...]:
    """The plan's facts on the data set and its two places."""
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
    """The amounts that are stored, sent and read back, to be priced."""
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
