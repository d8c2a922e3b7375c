"""What a data set holds, as the manifest of trainer.prepare and launch.data's records have it.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MANIFEST, RECORD = "manifest.json", "published.json"


@dataclass(frozen=True)
class Content:
    """What a data set holds; one without images is a plain folder."""

    train: int
    val: int
    bytes: int
    classes: int
    px: int = 0  # the shorter side that images were limited to; 0 if not limited

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


def read_content(record: Mapping[str, Any]) -> Content:
    """The content that a record in S3 or a manifest's summary holds.  Raises KeyError, TypeError and ValueError."""
    return Content(**{key: int(record[key]) for key in ("train", "val", "bytes", "classes", "px")})


def content_in(manifest: Mapping[str, Any]) -> Content:
    """Reads a manifest of trainer.prepare.  Raises KeyError, TypeError, AttributeError and ValueError."""
    splits = manifest["splits"]
    train, val = (int(splits.get(name, {}).get("images", 0)) for name in ("train", "val"))
    size = sum(int(split["bytes"]) for split in splits.values())
    return Content(train, val, size, len(manifest["classes"]), int(manifest["resize"] or 0))
