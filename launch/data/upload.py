"""Brings the files of a data set into S3: only those that are not there yet, with checksums that S3 verifies.

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
from launch.core.errors import AwsError
from launch.data.patient import Patient
from launch.data.prepared import File
from trainer.errors import DataError, TrainerError

# At most 10,000 parts of 5 MiB or more: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html
PART = 16 * 2**20
SHA256 = "sha256"  # of the whole, in an object's metadata: S3's own checksum of a multipart object is one of its parts
SUM = {"ChecksumAlgorithm": "SHA256"}


@dataclass(frozen=True)
class Place:
    """A folder in the account's bucket.  prefix: ends with /."""

    bucket: str
    prefix: str
    account: str

    def of(self, name: str) -> dict[str, str]:
        """Whose bucket it must be is said in each request: anybody can own a bucket of that name."""
        return {"Bucket": self.bucket, "Key": self.prefix + name, "ExpectedBucketOwner": self.account}

    def begun(self, key: str, upload: str) -> dict[str, str]:
        """An upload that was begun and not ended."""
        return {"Bucket": self.bucket, "Key": key, "UploadId": upload, "ExpectedBucketOwner": self.account}

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


def sizes(aws: Aws, place: Place) -> dict[str, int]:
    """{name: bytes} of what is in the folder."""
    query = {"Bucket": place.bucket, "Prefix": place.prefix, "ExpectedBucketOwner": place.account}
    rows = aws.pages("s3", "ListObjectsV2", "Contents", query)
    return {row["Key"].removeprefix(place.prefix): int(row["Size"]) for row in rows}


def is_same(aws: Aws, place: Place, file: File, there: Mapping[str, int]) -> bool:
    """Whether the folder has this file: by size, and by the digest that was stored with it."""
    if there.get(file.name) != file.bytes:
        return False
    try:
        head = aws.call("s3", "HeadObject", place.of(file.name))
    except AwsError as error:
        if error.aws_code in ("404", "NoSuchKey"):
            return False
        raise
    return str(head.get("Metadata", {}).get(SHA256)) == file.sha256


def put(patient: Patient, place: Place, name: str, content: bytes) -> None:
    """Writes a small object."""
    digest = hashlib.sha256(content)
    patient.call("s3", "PutObject", {**place.of(name), "Body": content, **_sum(digest.digest()),
                                     "Metadata": {SHA256: digest.hexdigest()}})  # fmt: skip


@dataclass(frozen=True)
class Uploader:
    """Uploads files; progress: told of bytes since the last call."""

    patient: Patient
    place: Place
    progress: Callable[[int], None]

    def upload(self, path: Path, file: File) -> None:
        """Raises DataError if the file is not what the manifest says; nothing is in S3 then."""
        if file.bytes <= PART:
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() != file.sha256:
                raise _changed(path)
            put(self.patient, self.place, file.name, content)
            self.progress(len(content))
            return
        started = self.patient.call("s3", "CreateMultipartUpload", {**self.place.of(file.name), **SUM,
                                                                    "Metadata": {SHA256: file.sha256}})  # fmt: skip
        whole = {**self.place.of(file.name), "UploadId": started["UploadId"]}
        try:
            parts = self._parts(path, file, whole)
            self.patient.call("s3", "CompleteMultipartUpload", {**whole, "MultipartUpload": {"Parts": parts}})
        except (TrainerError, KeyboardInterrupt):
            with suppress(TrainerError):  # the bucket's own rule removes what stays, after three days
                self.patient.call("s3", "AbortMultipartUpload", whole)
            raise

    def _parts(self, path: Path, file: File, whole: Mapping[str, str]) -> list[dict[str, Any]]:
        """Uploads the parts one after the other, and checks the whole before it becomes visible."""
        parts, digest = list[dict[str, Any]](), hashlib.sha256()
        with path.open("rb") as opened:
            while content := opened.read(PART):
                digest.update(content)
                mine = _sum(hashlib.sha256(content).digest())
                part = {"PartNumber": len(parts) + 1}
                answer = self.patient.call("s3", "UploadPart", {**whole, **part, "Body": content, **mine})
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
    """Adds up the bytes of several threads, and tells how many of how many."""

    def __init__(self, total: int, tell: Callable[[int, int], None]) -> None:
        self._total, self._tell, self._done, self._lock = total, tell, 0, Lock()

    def __call__(self, more: int) -> None:
        with self._lock:
            self._done += more
            self._tell(self._done, self._total)


def open_uploads(aws: Aws, place: Place) -> list[tuple[str, str]]:
    """Key and id of uploads that were begun and not ended, by a process that was killed."""
    query = {"Bucket": place.bucket, "Prefix": place.prefix, "ExpectedBucketOwner": place.account}
    rows = aws.pages("s3", "ListMultipartUploads", "Uploads", query)
    return [(str(row["Key"]), str(row["UploadId"])) for row in rows]
