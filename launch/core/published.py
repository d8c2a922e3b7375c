"""Data sets that launch.data has published: where they are in S3, and what the tags of their snapshots say.  Pure."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from launch.core.names import BUCKET_TAG, DATA_TAG, OWNER_TAG, STARTED_TAG, TOOLKIT
from trainer.errors import SettingsError

DIGEST_TAG = f"{TOOLKIT}:digest"  # of the manifest
CONTENT_TAG = f"{TOOLKIT}:content"  # counts, for plans
BLOCKS_TAG = f"{TOOLKIT}:blocks"  # how many were written, and the digest of their digests
NAME = r"[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?"
LARGEST = 10**18  # as the tags of a snapshot have it
MANIFEST, RECORD = "manifest.json", "published.json"

_CONTENT = re.compile(
    r"train=(?P<train>\d{1,12}) val=(?P<val>\d{1,12}) bytes=(?P<bytes>\d{1,18}) classes=(?P<classes>\d{1,9})"
    r" px=(?P<px>\d{1,6})",
    re.ASCII,
)


@dataclass(frozen=True)
class Content:
    """What a data set holds; one without images is a plain folder.

    px: the shorter side that images were limited to, 0 if they were not.
    """

    train: int
    val: int
    bytes: int
    classes: int
    px: int = 0

    @property
    def images(self) -> int:
        return self.train + self.val

    @property
    def is_plain(self) -> bool:
        return not self.images

    @property
    def image_bytes(self) -> float:
        """Of a mean image."""
        return self.bytes / max(1, self.images)

    @property
    def in_words(self) -> str:
        """For a plan."""
        if self.is_plain:
            return (
                f"a plain folder, {self.bytes / 1e9:,.1f} GB, for scripts; the built-in trainer reads it only as an "
                "imagefolder, if it has train/ and val/"
            )
        return f"{self.train:,} images to train, {self.val:,} to evaluate, {self.bytes / 1e9:,.1f} GB"

    def __str__(self) -> str:
        return f"train={self.train} val={self.val} bytes={self.bytes} classes={self.classes} px={self.px}"


def check_name(name: str) -> str:
    """`name`, if a data set can be called that in tags, S3 and IAM.  Raises SettingsError."""
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
    """The tags of a snapshot, as AWS takes them."""
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
    """Reads a snapshot's tags on its data; None where there are none, as on one made by hand."""
    found = _CONTENT.fullmatch(values.get(CONTENT_TAG, ""))
    if found is None:
        return None
    numbers = {key: int(value) for key, value in found.groupdict().items()}
    return Content(**numbers)


def is_published(values: Mapping[str, str]) -> bool:
    """Whether these tags of a snapshot are launch.data's: one that was made by hand has the name alone."""
    return DATA_TAG in values and DIGEST_TAG in values


def read_content(record: Mapping[str, Any]) -> Content:
    """The content that a record in S3 or a manifest's summary holds.  Raises KeyError, TypeError and ValueError."""
    try:
        return _checked(Content(**{key: int(record[key]) for key in ("train", "val", "bytes", "classes", "px")}))
    except OverflowError as error:
        raise ValueError("not a number") from error


def content_in(manifest: Mapping[str, Any]) -> Content:
    """Reads a manifest of trainer.prepare.  Raises KeyError, TypeError, AttributeError and ValueError."""
    splits = manifest["splits"]
    try:
        count = {name: int(splits.get(name, {}).get("images", 0)) for name in ("train", "val")}
        size = sum(int(split["bytes"]) for split in splits.values())
        px = int(manifest["resize"] or 0)
        return _checked(Content(count["train"], count["val"], size, len(manifest["classes"]), px))
    except OverflowError as error:  # Infinity and 1e400, which Python takes for JSON
        raise ValueError("not a number") from error


def _checked(content: Content) -> Content:
    """The content, if a forecast can count with it."""
    if not all(0 <= number < LARGEST for number in asdict(content).values()):
        raise ValueError("not a number of images or bytes")
    return content
