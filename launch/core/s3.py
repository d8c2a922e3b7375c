"""Places in S3.  Pure."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class S3Uri:
    """s3://bucket/key; the key may be empty, or a prefix."""

    bucket: str
    key: str = ""

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


def parse_s3(uri: str) -> S3Uri | None:
    """The place that `uri` names; None if it is not s3://bucket or s3://bucket/key.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
    """
    found = re.fullmatch(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?", uri)
    return S3Uri(found[1], found[2] or "") if found else None


def known_s3(uri: str) -> S3Uri:
    """The place that `uri` names, which is known to be one in S3."""
    place = parse_s3(uri)
    if place is None:
        raise ValueError(f"{uri!r} is not in S3")
    return place


def is_path(name: str) -> bool:
    """Whether what is left of a key is a path below a folder, and leads nowhere else: anybody may have written it."""
    return not {"", ".", ".."} & set(name.split("/")) and "\0" not in name
