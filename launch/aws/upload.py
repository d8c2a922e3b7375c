"""Upload a user's own code to S3: key, request, and the plan's facts about it.  Pure.

One archive serves all jobs with the same source: its key is its digest, which each rank verifies.  It cannot be
replaced, see put_once(), none of the toolkit's roles can delete it, and it expires: infra/cloudformation/account.yaml.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from launch.core.earlier import Earlier, restarts
from launch.core.plan import Fact, Request, put_once
from launch.core.source.archive import Archive
from launch.core.training.base import Training

if TYPE_CHECKING:  # it needs pathspec, which the separate venv of SageMaker's SDK lacks
    from launch.core.source.find import Source


FOLDER = "scripts"
# When the account's bucket deletes an archive; long after the last job that began in its month has ended.
KEPT_DAYS = 120
TAKEN = (
    "Change the source, were it a comment, so that it gets a name of its own; and tell the administrator, who can "
    "delete that file."
)
KEPT = "what it writes to $DDP_RUN_DIR, and nothing else"


def key_of(digest: str, started: datetime, name: str = "source") -> str:
    """The key of an archive for jobs that begin at that time.

    It contains the month, so that an archive can expire without affecting later jobs, which upload it again.
    """
    return f"{FOLDER}/{started.astimezone(UTC):%Y-%m}/{digest}/{name}.tar.gz"


def checksum(digest: str) -> str:
    """The SHA-256 in S3's format."""
    return b64encode(bytes.fromhex(digest)).decode()


def send(bucket: str, key: str, source: "Source") -> Request:
    """The request that uploads a source.

    S3 verifies the SHA-256 of the body and returns it later: see lookup.is_sent().
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html
    """
    return replace(_send(bucket, key, source.archive, "send the script and its source"), if_taken=TAKEN)


def send_toolkit(bucket: str, key: str, archive: Archive) -> Request:
    """The request that uploads the trainer, for images that lack it."""
    return _send(bucket, key, archive, "send the trainer, which the image lacks")


def _send(bucket: str, key: str, archive: Archive, why: str) -> Request:
    digest = checksum(archive.digest)
    more = {"ContentType": "application/gzip", "ChecksumAlgorithm": "SHA256", "ChecksumSHA256": digest}
    return put_once(bucket, key, archive.content, why, **more)


def facts(train: Training, earlier: Sequence[Earlier] = (), is_there: bool | None = None) -> list[Fact]:
    """The plan's facts about a script; empty without one.

    earlier: its jobs, the newest first; is_there: whether S3 has its source already, None if none is uploaded.
    """
    source = train.source
    if source is None:
        return []
    value = {
        "files": len(source.files),
        "bytes": source.bytes,
        "sent_bytes": len(source.archive.content),
        "sha256": source.digest,
        "requirements": source.requirements or None,
        **({} if is_there is None else {"already_there": is_there}),
    }
    files = "1 file" if len(source.files) == 1 else f"{len(source.files)} files"
    text = f"{files} of {source.top}, {len(source.archive.content):,} bytes, SHA-256 {source.digest:.16}" + (
        ": already there, nothing is sent" if is_there else ""
    )
    packages = f"those of {source.requirements} that the image lacks, installed at the start"
    return [
        Fact("script_source", value, text, "script"),
        Fact("packages", source.requirements or None, packages if source.requirements else "those of the image"),
        Fact("kept", "$DDP_RUN_DIR", KEPT, "kept"),
        Fact("restarts", *restarts(earlier), "a restart"),
    ]


_DIGEST = re.compile(r"--digest ([0-9a-f]{64})")


def edited(then: str, now: str) -> str:
    """A sentence if two texts with a script's command differ only in its source, else empty.

    For users who edit a file and repeat the command, which then is another job.
    """
    old, new = _DIGEST.search(then), _DIGEST.search(now)
    if not (old and new) or old[1] == new[1] or _DIGEST.sub("", then, 1) != _DIGEST.sub("", now, 1):
        return ""
    return f"the files of its source were changed since (SHA-256 {old[1]:.12} then, {new[1]:.12} now)"
