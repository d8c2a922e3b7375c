"""Upload the files of a data set to S3: only missing ones, with checksums that S3 verifies.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html
"""

import base64
import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from launch.aws.client import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.terminal import Say
from launch.data.pool import Pool
from launch.data.prepared import File
from trainer.errors import DataError, TrainerError

# At most 10,000 parts of 5 MiB or more: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html
PART = 16 * 2**20
SHA256 = "sha256"  # of the whole file, in its metadata: S3 computes that of a multipart object from its parts
SUM = {"ChecksumAlgorithm": "SHA256"}


@dataclass(frozen=True)
class Place:
    """A folder in the account's bucket.  prefix: ends with /."""

    bucket: str
    prefix: str
    account: str

    def of(self, name: str) -> dict[str, str]:
        """Parameters for an object, with the expected owner, as another account could own a bucket of that name."""
        return {"Bucket": self.bucket, "Key": self.prefix + name, "ExpectedBucketOwner": self.account}

    def begun(self, key: str, upload: str) -> dict[str, str]:
        """Parameters for an unfinished multipart upload."""
        return {"Bucket": self.bucket, "Key": key, "UploadId": upload, "ExpectedBucketOwner": self.account}

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


def sizes(aws: Aws, place: Place) -> dict[str, int]:
    """{name: bytes} of the objects in the folder."""
    query = {"Bucket": place.bucket, "Prefix": place.prefix, "ExpectedBucketOwner": place.account}
    rows = aws.pages("s3", "ListObjectsV2", "Contents", query)
    return {row["Key"].removeprefix(place.prefix): int(row["Size"]) for row in rows}


def is_same(aws: Aws, place: Place, file: File, there: Mapping[str, int]) -> bool:
    """Whether the folder has this file, by size and by the stored digest."""
    if there.get(file.name) != file.bytes:
        return False
    try:
        head = aws.call("s3", "HeadObject", place.of(file.name))
    except AwsError as error:
        if error.aws_code in ("404", "NoSuchKey"):
            return False
        raise
    return str(head.get("Metadata", {}).get(SHA256)) == file.sha256


def put(pool: Pool, place: Place, name: str, content: bytes) -> None:
    """Write a small object."""
    digest = hashlib.sha256(content)
    pool.call("s3", "PutObject", {**place.of(name), "Body": content, **_sum(digest.digest()),
                                     "Metadata": {SHA256: digest.hexdigest()}})  # fmt: skip


@dataclass(frozen=True)
class Uploader:
    """Uploads files.  progress: called with the bytes since its last call."""

    pool: Pool
    place: Place
    progress: Callable[[int], None]

    def upload(self, path: Path, file: File) -> None:
        """Upload a file.  Raises DataError, and leaves nothing in S3, if it differs from the manifest."""
        if file.bytes <= PART:
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() != file.sha256:
                raise _changed(path)
            put(self.pool, self.place, file.name, content)
            self.progress(len(content))
            return
        started = self.pool.call("s3", "CreateMultipartUpload", {**self.place.of(file.name), **SUM,
                                                                    "Metadata": {SHA256: file.sha256}})  # fmt: skip
        whole = {**self.place.of(file.name), "UploadId": started["UploadId"]}
        try:
            parts = self._parts(path, file, whole)
            self.pool.call("s3", "CompleteMultipartUpload", {**whole, "MultipartUpload": {"Parts": parts}})
        except (TrainerError, KeyboardInterrupt):
            with suppress(TrainerError):  # otherwise the bucket's lifecycle rule removes it after three days
                self.pool.call("s3", "AbortMultipartUpload", whole)
            raise

    def _parts(self, path: Path, file: File, whole: Mapping[str, str]) -> list[dict[str, Any]]:
        """Upload the parts one after the other, and verify the whole before it becomes visible."""
        parts, digest = list[dict[str, Any]](), hashlib.sha256()
        with path.open("rb") as opened:
            while content := opened.read(PART):
                digest.update(content)
                mine = _sum(hashlib.sha256(content).digest())
                part = {"PartNumber": len(parts) + 1}
                answer = self.pool.call("s3", "UploadPart", {**whole, **part, "Body": content, **mine})
                parts.append({**part, "ETag": answer["ETag"], "ChecksumSHA256": mine["ChecksumSHA256"]})
                self.progress(len(content))
        if digest.hexdigest() != file.sha256:
            raise _changed(path)
        return parts


def _sum(digest: bytes) -> dict[str, str]:
    return {**SUM, "ChecksumSHA256": base64.b64encode(digest).decode()}


def _changed(path: Path) -> DataError:
    return DataError(f"{path} has changed since it was prepared (SHA-256); run trainer.prepare again.")


class Counter:
    """Adds up bytes from several threads and reports the sum and the total."""

    def __init__(self, total: int, report: Callable[[int, int], None], done: int = 0) -> None:
        """done: earlier."""
        self._total, self._report, self._done, self._lock = total, report, done, Lock()

    def __call__(self, more: int) -> None:
        with self._lock:
            self._done += more
            self._report(self._done, self._total)


SAY_EVERY_S = 10.0


def progress(clock: Clock, say: Say, where: str) -> Callable[[int, int], None]:
    """A function that shows progress in bytes now and then, with the remaining time."""
    began = last = clock.now()

    def show(done: int, total: int) -> None:
        nonlocal last
        now = clock.now()
        if done < total and now - last < SAY_EVERY_S:
            return
        last = now
        left_s = (now - began) * (total - done) / max(1, done)
        ahead = f", {left_s / 60:.0f} min left" if left_s >= 60 else ""
        say(f"  {done / 1e9:,.2f} of {total / 1e9:,.2f} GB {where}{ahead}")

    return show


def open_uploads(aws: Aws, place: Place) -> list[tuple[str, str]]:
    """Keys and ids of unfinished multipart uploads, as a killed process leaves them."""
    query = {"Bucket": place.bucket, "Prefix": place.prefix, "ExpectedBucketOwner": place.account}
    rows = aws.pages("s3", "ListMultipartUploads", "Uploads", query)
    return [(str(row["Key"]), str(row["UploadId"])) for row in rows]
