"""List data in S3, and copy them to this machine."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from threading import Lock
from typing import Any

from launch.aws.client import Aws
from launch.aws.names import S3Uri, bucket_of, is_path, parse_s3
from launch.core.manifest import MANIFEST
from launch.core.plan import Fact, Plan, Request
from launch.data.costs import Work, compare, work_of
from launch.data.options import PublishOptions
from launch.data.pool import Pool
from launch.data.upload import Counter
from trainer.errors import DataError, SettingsError, TrainerError, not_written

ARCHIVES = (".tar", ".tar.gz", ".tar.bz2", ".tar.xz", ".tgz", ".zip")
PART = 16 * 2**20
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/archived-objects.html
ARCHIVED = ("GLACIER", "DEEP_ARCHIVE")


@dataclass(frozen=True, slots=True)  # ImageNet's folder has 1.28 million of them
class Item:
    """An object.  name: relative to the source; etag: ensures that it is read as it was listed."""

    name: str
    key: str
    bytes: int
    etag: str

    @property
    def parts(self) -> range:
        """Where each part begins."""
        return range(0, max(1, self.bytes), PART)


@dataclass(frozen=True)
class Source:
    """One object, or all below a prefix."""

    uri: str
    bucket: str
    items: tuple[Item, ...]
    is_object: bool = False

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.items)

    @property
    def words(self) -> str:
        return f"{self.uri}: {len(self.items):,} objects, {self.bytes / 1e9:,.2f} GB"

    @property
    def are_archives(self) -> bool:
        """Whether most of it is in archives, whose images cannot be counted from here."""
        packed = sum(item.bytes for item in self.items if item.name.endswith(ARCHIVES))
        return 2 * packed > self.bytes

    @property
    def is_prepared(self) -> bool:
        return not self.is_object and any(item.name == MANIFEST for item in self.items)


def is_in_s3(source: str) -> bool:
    return source.startswith("s3:")


def name_of(path: str) -> str:
    """The name of a data set: photos, for sources/photos/ and for photos.tar.gz."""
    name = path.rstrip("/").rpartition("/")[2]
    for suffix in sorted(ARCHIVES, key=len, reverse=True):
        name = name.removesuffix(suffix)
    return name


def place_in_s3(source: str) -> S3Uri:
    """Parse an address in S3.  Raises SettingsError for any other, and for a whole bucket."""
    place = parse_s3(source)
    if place is None or not place.key.strip("/"):
        raise SettingsError(f"{source} is not a folder in S3; give one as s3://BUCKET/FOLDER, or s3://BUCKET/FILE.tar.")
    return place


def not_in_s3(source: str) -> SettingsError:
    """Why an instance cannot publish a local folder, and what to do."""
    place = quote(f"s3://{bucket_of('ACCOUNT', 'REGION')}/sources/{Path(source).name}")
    return SettingsError(
        f"{source} is on this machine, and an instance reads from S3 alone; copy it there first (aws s3 cp "
        f"{quote(source)} {place} --recursive), and publish {place}; or publish it --by here."
    )


def find_source(aws: Aws, source: str) -> Source:
    """List the source.  Raises SettingsError if it is empty."""
    place = place_in_s3(source)
    key = place.key.rstrip("/")
    uri = f"s3://{place.bucket}/{key}"
    # Keys are sorted, so an object comes before others that begin with its key.
    for row in _page(aws, place.bucket, key, {"MaxKeys": 1}).get("Contents", []):
        if row["Key"] == key:
            _check_readable(uri, [row])
            return Source(uri, place.bucket, (_item(row, key.rpartition("/")[0] + "/"),), is_object=True)
    items, archived = list[Item](), list[Mapping[str, Any]]()
    for row in _rows(aws, place.bucket, f"{key}/"):
        if not row["Key"].endswith("/"):
            items.append(_item(row, f"{key}/"))
            archived += [row] if is_archived(row) else []
    if not items:
        raise SettingsError(f"there is nothing in {uri}; see aws s3 ls {uri}/.")
    _check_readable(uri, archived)
    return Source(uri, place.bucket, tuple(items))


def _rows(aws: Aws, bucket: str, prefix: str) -> Iterator[Mapping[str, Any]]:
    """The rows, page by page: a row takes five times as much memory as an Item."""
    more: Mapping[str, Any] = {}
    while True:
        answer = _page(aws, bucket, prefix, more)
        yield from answer.get("Contents", [])
        if not answer.get("IsTruncated"):
            return
        more = {"ContinuationToken": answer["NextContinuationToken"]}


def _page(aws: Aws, bucket: str, prefix: str, more: Mapping[str, Any]) -> Mapping[str, Any]:
    query = {"Bucket": bucket, "Prefix": prefix, "OptionalObjectAttributes": ["RestoreStatus"], **more}
    return aws.call("s3", "ListObjectsV2", query)


def is_archived(row: Mapping[str, Any]) -> bool:
    """Whether it must be restored before it can be read.

    https://docs.aws.amazon.com/AmazonS3/latest/API/API_RestoreStatus.html is absent before a restore is requested.
    """
    status = row.get("RestoreStatus", {})
    is_restored = bool(status) and not status.get("IsRestoreInProgress")
    return row.get("StorageClass") in ARCHIVED and not is_restored


def _check_readable(uri: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise SettingsError for archived objects, which GetObject refuses (InvalidObjectState), hours after the start."""
    archived = [row for row in rows if is_archived(row)]
    if archived:
        first = f"{archived[0]['Key']} in {archived[0]['StorageClass']}"
        raise SettingsError(
            f"{len(archived):,} objects of {uri} are archived, as {first}; restore them first (aws s3api "
            "restore-object), or copy them into another storage class."
        )


def _item(row: Mapping[str, Any], prefix: str) -> Item:
    return Item(row["Key"].removeprefix(prefix), row["Key"], int(row["Size"]), str(row["ETag"]))


# ---- a copy on this machine


def work_with(options: PublishOptions, source: Source) -> Work:
    """The work for a source in S3."""
    return work_of(source.bytes, len(source.items), are_archives=source.are_archives, is_prepared=source.is_prepared,
                   resized=not options.originals)  # fmt: skip


def plan_copy_here(
    options: PublishOptions, source: Source | None, folder: Path, vcpus: int, problems: Sequence[TrainerError] = ()
) -> Plan[None]:
    """The plan of copying the source to this machine, and what an instance would take instead.

    source: None if it was not found.
    """
    facts, compared = [Fact("source", None, "not found")], tuple[Fact, ...]()
    if source is not None:
        facts = [Fact("source", source.uri, source.words)]
        compared = compare(options, work_with(options, source), vcpus).rates
    get = {"Bucket": source.bucket if source else "<bucket>", "Key": "<key>", "IfMatch": "<its ETag>"}
    return Plan(
        title=f"copy {source.uri if source else 'the source'} to this machine, and publish it from here",
        payload=None,
        facts=(*facts, Fact("folder", str(folder))),
        rates=compared,
        problems=tuple(problems),
        later=(("for each object, above 16 MiB in parts:", (Request("s3", "GetObject", get, "copy it here"),)),),
    )


@dataclass
class Copying:
    """Copies a source into a folder, several parts at a time, without files that are complete there.

    progress: called with the bytes done and in total.
    """

    pool: Pool
    source: Source
    folder: Path
    progress: Callable[[int, int], None]
    _left: dict[str, int] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def copy(self) -> Path:
        """Copy; return the input of trainer.prepare: the folder, or the only file."""
        self._check()
        missing = [item for item in self.source.items if not self._is_there(item)]
        counter = Counter(sum(item.bytes for item in missing), self.progress)
        self._left = {item.name: len(item.parts) for item in missing}
        parts = [(item, at) for item in missing for at in item.parts]
        try:
            self._copy(missing, parts, counter)
            shutil.rmtree(self._unfinished, ignore_errors=True)
        except OSError as error:
            words = f"cannot copy {self.source.uri} to {self.folder} ({error.strerror}); run it in another folder."
            raise not_written(error, words) from error
        return self.folder / self.source.items[0].name if self.source.is_object else self.folder

    def _check(self) -> None:
        """Raise DataError for a name that leads out of the folder."""
        for item in self.source.items:
            if not is_path(item.name):
                words = "is the name of an object and not valid for a file; remove it, or give another folder."
                raise DataError(f"{item.name!r} {words}")

    def _copy(self, missing: list[Item], parts: list[tuple[Item, int]], counter: Counter) -> None:
        for item in missing:
            self._begin(item)

        def fetch(part: tuple[Item, int]) -> None:
            counter(self._fetch(*part))

        self.pool.each(parts, fetch)

    def _is_there(self, item: Item) -> bool:
        """Whether the file exists with its size; a file gets its name when it is complete."""
        path = self.folder / item.name
        return path.is_file() and path.stat().st_size == item.bytes

    def _begin(self, item: Item) -> None:
        for path in (self.folder / item.name, self._partial(item)):
            path.parent.mkdir(parents=True, exist_ok=True)
        with self._partial(item).open("wb") as file:
            file.truncate(item.bytes)

    def _partial(self, item: Item) -> Path:
        return self._unfinished / item.name

    @property
    def _unfinished(self) -> Path:
        """The folder of unfinished files; outside of the copy, where any name may be an object's."""
        return self.folder.with_name(f"{self.folder.name}.partial")

    def _fetch(self, item: Item, at: int) -> int:
        """Fetch a part, and rename the file with the last one.  Return the number of bytes."""
        params = {"Bucket": self.source.bucket, "Key": item.key, "IfMatch": item.etag}
        if item.bytes > PART:
            params["Range"] = f"bytes={at}-{min(item.bytes, at + PART) - 1}"
        content = self.pool.call("s3", "GetObject", params)["Body"].read()
        if len(content) != min(item.bytes - at, PART):
            raise DataError(f"s3://{self.source.bucket}/{item.key} has changed while it was read; run it again.")
        with self._partial(item).open("r+b") as opened:
            opened.seek(at)
            opened.write(content)
        with self._lock:
            self._left[item.name] -= 1
            is_whole = not self._left[item.name]
        if is_whole:
            self._partial(item).replace(self.folder / item.name)
        return len(content)
