"""Data sets published by launch.data: their place in S3, and the tags of their snapshots.  Pure."""

import re
from collections.abc import Mapping

from launch.aws.names import BUCKET_TAG, DATA_TAG, OWNER_TAG, STARTED_TAG, TOOLKIT
from launch.core.manifest import Content
from trainer.errors import SettingsError

DIGEST_TAG = f"{TOOLKIT}:digest"  # of the manifest
CONTENT_TAG = f"{TOOLKIT}:content"  # counts, for plans
BLOCKS_TAG = f"{TOOLKIT}:blocks"  # how many were written, and the digest of their digests
NAME = r"[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?"

_CONTENT = re.compile(
    r"train=(?P<train>\d{1,12}) val=(?P<val>\d{1,12}) bytes=(?P<bytes>\d{1,18}) classes=(?P<classes>\d{1,9})"
    r" px=(?P<px>\d{1,6})",
    re.ASCII,
)


def check_name(name: str) -> str:
    """Return `name` if it is valid for a data set in tags, S3 and IAM.  Raises SettingsError."""
    if not re.fullmatch(NAME, name):
        raise SettingsError(
            f"{name!r} cannot be the name of a data set: at most 48 lower-case letters, digits and hyphens, with a "
            "letter or digit at both ends."
        )
    return name


def prefix_of(name: str) -> str:
    """The data set's folder in the toolkit's bucket, which the roles of nodes and of SageMaker may read."""
    return f"data/{name}/"


def tags(
    name: str, content: Content, digest: str, blocks: str, bucket: str, owner: str, started: str
) -> list[dict[str, str]]:
    """The tags of a snapshot, in AWS's format."""
    named = {
        "Name": f"{TOOLKIT}-data-{name}",
        DATA_TAG: name,
        STARTED_TAG: started,
        BUCKET_TAG: bucket,
        OWNER_TAG: owner,
        DIGEST_TAG: digest,
        CONTENT_TAG: str(content),
        BLOCKS_TAG: blocks,
    }
    return [{"Key": key, "Value": value} for key, value in named.items()]


def content_of(values: Mapping[str, str]) -> Content | None:
    """The content in a snapshot's tags; None without it, as on one made by hand."""
    found = _CONTENT.fullmatch(values.get(CONTENT_TAG, ""))
    if found is None:
        return None
    numbers = {key: int(value) for key, value in found.groupdict().items()}
    return Content(**numbers)


def is_published(values: Mapping[str, str]) -> bool:
    """Whether these tags of a snapshot are launch.data's: one that was made by hand has only the name."""
    return DATA_TAG in values and DIGEST_TAG in values
