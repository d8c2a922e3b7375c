"""Data that lie in S3: what is there, and a copy of it on this machine."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from launch.aws.client import Aws
from launch.aws.names import S3Uri, parse_s3
from launch.core.manifest import MANIFEST
from launch.data.patient import Patient
from launch.data.upload import Counter
from trainer.errors import DataError, SettingsError, not_written

ARCHIVES = (".tar", ".tar.gz", ".tar.bz2", ".tar.xz", ".tgz", ".zip")
PART = 16 * 2**20
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/archived-objects.html
ARCHIVED = ("GLACIER", "DEEP_ARCHIVE")


@dataclass(frozen=True, slots=True)  # of which ImageNet's folder has 1.28 million
class Item:
    """An object.  name: relative to the source; etag: its content's, by which it is read as it was listed."""

    name: str
    key: str
    bytes: int
    etag: str

    @property
    def parts(self) -> range:
        """Where each of them begins."""
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
    def are_archives(self) -> bool:
        """Whether most of it is in archives, in which nobody can count the images from here."""
        packed = sum(item.bytes for item in self.items if item.name.endswith(ARCHIVES))
        return 2 * packed > self.bytes

    @property
    def is_prepared(self) -> bool:
        return not self.is_object and any(item.name == MANIFEST for item in self.items)


def is_in_s3(source: str) -> bool:
    return source.startswith("s3:")


def name_of(path: str) -> str:
    """photos, of sources/photos/ and of photos.tar.gz."""
    name = path.rstrip("/").rpartition("/")[2]
    for suffix in sorted(ARCHIVES, key=len, reverse=True):
        name = name.removesuffix(suffix)
    return name


def place_in_s3(source: str) -> S3Uri:
    """The place.  Raises SettingsError for what is none, and for a whole bucket."""
    place = parse_s3(source)
    if place is None or not place.key.strip("/"):
        raise SettingsError(f"{source} is no folder in S3; give one as s3://BUCKET/FOLDER, or s3://BUCKET/FILE.tar.")
    return place


def find_source(aws: Aws, source: str) -> Source:
    """What is there.  Raises SettingsError if it is nothing."""
    place = place_in_s3(source)
    key = place.key.rstrip("/")
    uri = f"s3://{place.bucket}/{key}"
    # In their order an object comes before all whose names begin with its own.
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
    """A page at a time: a row takes five times as much memory as what is kept of it."""
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

    https://docs.aws.amazon.com/AmazonS3/latest/API/API_RestoreStatus.html: there is none before that is asked for.
    """
    status = row.get("RestoreStatus", {})
    is_restored = bool(status) and not status.get("IsRestoreInProgress")
    return row.get("StorageClass") in ARCHIVED and not is_restored


def _check_readable(uri: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Raises SettingsError for what GetObject refuses (InvalidObjectState), hours after the instance was started."""
    archived = [row for row in rows if is_archived(row)]
    if archived:
        first = f"{archived[0]['Key']} in {archived[0]['StorageClass']}"
        raise SettingsError(
            f"{len(archived):,} objects of {uri} are archived, as {first}; restore them first (aws s3api "
            "restore-object), or copy them into another storage class."
        )


def _item(row: Mapping[str, Any], prefix: str) -> Item:
    return Item(row["Key"].removeprefix(prefix), row["Key"], int(row["Size"]), str(row["ETag"]))


# ---- a copy here


@dataclass
class Copying:
    """Copies a source into a folder, several parts at a time; what is whole there is not fetched again.

    progress: told of how many bytes of how many.
    """

    patient: Patient
    source: Source
    folder: Path
    progress: Callable[[int, int], None]
    _left: dict[str, int] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def copy(self) -> Path:
        """Returns what trainer.prepare takes: the folder, or the one file."""
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
        """Raises DataError for a name that leads out of the folder."""
        for item in self.source.items:
            check_name(item.name)

    def _copy(self, missing: list[Item], parts: list[tuple[Item, int]], counter: Counter) -> None:
        for item in missing:
            self._begin(item)

        def fetch(part: tuple[Item, int]) -> None:
            counter(self._fetch(*part))

        self.patient.each(parts, fetch)

    def _is_there(self, item: Item) -> bool:
        """By its size: a file gets its name once it is whole."""
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
        """Beside the folder: in it, any name may be that of an object."""
        return self.folder.with_name(f"{self.folder.name}.partial")

    def _fetch(self, item: Item, at: int) -> int:
        """Fetches a part; the file gets its name with the last one.  Returns its bytes."""
        params = {"Bucket": self.source.bucket, "Key": item.key, "IfMatch": item.etag}
        if item.bytes > PART:
            params["Range"] = f"bytes={at}-{min(item.bytes, at + PART) - 1}"
        content = self.patient.call("s3", "GetObject", params)["Body"].read()
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


def check_name(name: str) -> None:
    """Raises DataError for a key that is no path below the folder: anybody may have written it."""
    parts = name.split("/")
    if {"", ".", ".."} & set(parts) or "\\" in name or "\0" in name:
        raise DataError(f"{name!r} is the name of an object and no name of a file; remove it, or give another folder.")
    with suppress(UnicodeEncodeError):
        if all(len(part.encode()) <= 240 for part in parts):
            return
    raise DataError(f"the name of {name[:60]!r}... is too long for a file.")
