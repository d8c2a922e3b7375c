"""manifest.json, which describes a prepared folder.  Written last, so a folder without it is unfinished.  No torch.

DST/manifest.json     this file
DST/train/index.npy   where each image lies, in the order of the source's own listing: see ENTRY
DST/train/000000.tar  WebDataset: KEY.jpg (or .png, ...) followed by KEY.cls, the number of its class
DST/val/...           the same
"""

import json
import os
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainer.datasets.tree import EVALUATION
from trainer.errors import DataError, one_line
from trainer.files import read_json

MANIFEST = "manifest.json"
# A row of index.npy.  offset: position of the image's first byte in its shard, after a tar header of HEADER bytes.
ENTRY = [("shard", "<u4"), ("offset", "<u8"), ("length", "<u4"), ("label", "<u4")]
HEADER = 512
UNFINISHED = ".prepare"  # the state from which trainer.prepare resumes; removed once the manifest is written
FORMAT: Final = "webdataset"
VERSION: Final = 1
SPLITS = ("train", "val")

_FILE = r"^(train|val)/[A-Za-z0-9_-]+\.(tar|npy)$"  # never outside the folder
_SHA256 = r"^[0-9a-f]{64}$"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Index(_Part):
    """The index file of a split, which holds the position of each image."""

    file: str = Field(pattern=_FILE)
    sha256: str = Field(pattern=_SHA256)


class Shard(_Part):
    """One tar file."""

    file: str = Field(pattern=_FILE)
    images: int = Field(ge=0)  # 0 if all images meant for it were damaged
    bytes: int = Field(ge=1)  # size of the file
    sha256: str = Field(pattern=_SHA256)


class Half(_Part):
    """One split."""

    images: int = Field(ge=1)
    bytes: int = Field(ge=1)  # size of its shards
    index: Index
    shards: tuple[Shard, ...] = Field(min_length=1)


class Splits(_Part):
    """Both splits."""

    train: Half
    val: Half


class Manifest(_Part):
    """A prepared data set."""

    format: Literal["webdataset"] = FORMAT
    version: Literal[1] = VERSION
    name: str
    classes: tuple[str, ...] = Field(min_length=1)
    resize: int | None  # maximum of the shorter side in pixels; None: unchanged
    quality: int | None  # of the JPEGs that were encoded
    splits: Splits
    source: dict[str, Any]  # its kind and name
    bad_images: int = Field(ge=0)  # images left out because they could not be read

    @property
    def eval_split(self) -> str:
        """The name of the evaluation split in the source."""
        name = self.source.get("eval_split")
        return str(name) if name in EVALUATION else "val"

    def as_json(self) -> str:
        """The text of manifest.json."""
        return json.dumps(self.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n"


def find_manifest(folder: Path) -> Manifest | None:
    """The manifest of a prepared folder, None for any other folder.  Raises DataError if it is damaged."""
    path = folder / MANIFEST
    try:
        content = read_json(path)
    except FileNotFoundError:
        if (folder / UNFINISHED).exists():
            raise DataError(
                f"{one_line(folder, 300)} is not fully prepared; run python -m trainer.prepare again to resume."
            ) from None
        return None
    except NotADirectoryError:
        return None
    except (OSError, ValueError) as error:
        if not os.access(folder, os.X_OK):  # no folder, or one without permission: find_tree() reports it
            return None
        raise _damaged(str(path), error) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        return None  # written by another program
    return read_manifest(content, str(path))


def read_manifest(content: object, place: str) -> Manifest:
    """Validate the parsed JSON of a manifest.  place: its path, for messages.  Raises DataError."""
    if isinstance(content, dict) and content.get("version", VERSION) != VERSION:
        raise DataError(
            f"{place} has version {one_line(content['version'])}, and this toolkit reads {VERSION}; update the toolkit."
        )
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "all of it"
        raise _damaged(place, f"{where}: {first['msg']}") from error


def _damaged(place: str, why: object) -> DataError:
    return DataError(f"{one_line(place, 300)} is damaged ({one_line(why, 200)}); prepare or copy the data again.")
