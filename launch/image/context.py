"""The build's context as a zip, for a machine without a checkout.  The same files give the same bytes, and a name."""

import hashlib
import stat
from dataclasses import dataclass
from io import BytesIO
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from launch.image.source import Source

# infra/cloudformation/account.yaml lets it go after some days; infra/iam names it, too.
PREFIX = "images/"


@dataclass(frozen=True)
class Context:
    """content: the zip; key: where it lies in the account's bucket."""

    content: bytes
    key: str


def pack(source: Source) -> Context:
    """The files of `source`, and no others."""
    whole = BytesIO()
    # Not compressed, for zlib's versions pack differently.
    with ZipFile(whole, "w", ZIP_STORED) as file:
        for name in source.names:
            entry = ZipInfo(name)  # from 1980, as the Dockerfile has it
            entry.create_system, entry.external_attr = 3, (stat.S_IFREG | 0o644) << 16
            file.writestr(entry, (source.folder / name).read_bytes())
    content = whole.getvalue()
    return Context(content, f"{PREFIX}{hashlib.sha256(content).hexdigest()[:16]}.zip")
